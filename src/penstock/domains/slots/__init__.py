"""Slots: an instant for every event, under capacity, once and for ever."""

from penstock.domains.slots.plug import build

__all__ = ["build"]
