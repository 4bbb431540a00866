"""Temporal: start workflows, keep a schedule in step, run workers. Plain types, no domain.

Every module needs the extra `temporal`.
"""
