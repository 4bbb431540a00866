"""`penstock subscription`: make, see, change and end subscriptions, a few verbs per module."""

from penstock.domains.webhooks.commands.subscription.group import subscription_group

__all__ = ["subscription_group"]
