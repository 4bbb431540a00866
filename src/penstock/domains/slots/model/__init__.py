"""The rules of slots in plain Python, as an oracle: what the database must answer, told slowly.

Production does not call this; tests compare the two on random histories.
"""

from penstock.domains.slots.model.line import Rule
from penstock.domains.slots.model.pool import (
    Answer,
    Forecast,
    Ledger,
    Move,
    Place,
    Pool,
    Reflow,
    Slot,
)

__all__ = ["Answer", "Forecast", "Ledger", "Move", "Place", "Pool", "Reflow", "Rule", "Slot"]
