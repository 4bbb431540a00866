"""Penstock runs due work at a rate that the receiving side can handle; none is lost or repeated.

Names are imported when they are used: the import of one small part, such as the HTTP client, must
not load the whole application.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.base.errors import PenstockError
    from penstock.kernel.item import (
        Accepted,
        Dead,
        Done,
        Hold,
        Item,
        NewItem,
        Outcome,
        Retry,
        Snooze,
    )
    from penstock.kernel.payload import Money
else:
    # Hidden from type checkers, which would take every other name for one of this function.
    def __getattr__(name: str) -> object:
        """Import the module that defines a public name, at its first use."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return found


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

# The module of each name, as the imports for type checkers have it; a test compares the two.
_HOMES = dict.fromkeys(__all__, "penstock.kernel.item") | {
    "Money": "penstock.kernel.payload",
    "Penstock": "penstock.app",
    "PenstockError": "penstock.base.errors",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
