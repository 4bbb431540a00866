"""Invoices: a domain for Penstock in a package of its own."""
