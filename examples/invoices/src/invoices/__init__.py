"""Invoices: a domain for Penstock in a separate package."""
