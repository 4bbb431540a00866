"""`penstock slots`: take slots, see them, give them back, and forecast, one verb per module."""

from penstock.cli.slots.group import slots

__all__ = ["slots"]
