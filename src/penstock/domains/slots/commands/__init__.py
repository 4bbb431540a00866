"""`penstock slots`: assign, show, cancel and forecast slots, one verb per module."""

from penstock.domains.slots.commands.group import slots

__all__ = ["slots"]
