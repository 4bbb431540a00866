"""Generates the blocks of the reference pages that mirror the code, one module per page."""
