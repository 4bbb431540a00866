"""Invoices as an item type of the payments dispatcher, executed on Temporal."""
