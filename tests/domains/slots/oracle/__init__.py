"""The rules of slots in plain Python, without a database: the expected result of every call.

It favours clarity over speed. Tests compare it with the database on random histories.
"""

from tests.domains.slots.oracle.pool import (
    Assignment,
    Forecast,
    Ledger,
    Move,
    Place,
    Pool,
    Reflow,
    Slot,
)
from tests.domains.slots.oracle.timeline import Rule

__all__ = ["Assignment", "Forecast", "Ledger", "Move", "Place", "Pool", "Reflow", "Rule", "Slot"]
