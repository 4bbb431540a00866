"""`penstock demo`: a burst against a rate limit, with progress, a table and plots."""

from penstock.cli.demo.command import demo

__all__ = ["demo"]
