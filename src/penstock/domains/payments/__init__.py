"""Payments: scheduled in one phase, executed in another, each of them once."""
