"""`penstock subscription`: make, see, change and end subscriptions, a few verbs per module."""

from penstock.cli.subscription.group import subscription

__all__ = ["subscription"]
