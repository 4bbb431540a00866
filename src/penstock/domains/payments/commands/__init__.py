"""The command group of payments."""

from penstock.domains.payments.commands.group import payment_group

__all__ = ["payment_group"]
