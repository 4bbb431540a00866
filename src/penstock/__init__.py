"""Penstock runs due work at a rate that the receiving side can handle; none is lost or repeated."""

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
