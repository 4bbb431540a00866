"""Penstock lets due work out at a rate the other side can bear, and never loses or repeats any."""

from penstock.app import Penstock
from penstock.base.errors import PenstockError
from penstock.kernel.item import Accepted, Dead, Done, Hold, Item, NewItem, Outcome, Retry, Snooze
from penstock.kernel.payload import Money

__all__ = [
    "Accepted",
    "Dead",
    "Done",
    "Hold",
    "Item",
    "Money",
    "NewItem",
    "Outcome",
    "Penstock",
    "PenstockError",
    "Retry",
    "Snooze",
]
