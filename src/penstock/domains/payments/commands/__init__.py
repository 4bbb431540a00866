"""The command group of payments."""

from penstock.domains.payments.commands.composed import Composed
from penstock.domains.payments.commands.group import payment_group

__all__ = ["Composed", "payment_group"]
