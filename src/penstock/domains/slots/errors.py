"""The errors of slots.

PenstockError
├── NotFound: UnknownPool, UnknownSlot
├── Conflict: SlotConflict; SlotRefused is the kernel's, as a lane may name a pool
└── Unavailable: PoolExhausted
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from penstock.base.errors import Conflict, Exposure, NotFound, Unavailable


@dataclass(eq=False)
class UnknownPool(NotFound):
    """No slot pool has this name, which is a config name in the REST API."""

    code: ClassVar[str] = "unknown-pool"
    pool: str

    def __str__(self) -> str:
        return f"no slot pool is named {self.pool!r}"


@dataclass(eq=False)
class UnknownSlot(NotFound):
    """The event has no slot."""

    code: ClassVar[str] = "unknown-slot"
    event_id: str

    def __str__(self) -> str:
        return f"event {self.event_id!r} has no slot"


@dataclass(eq=False)
class SlotConflict(Conflict):
    """The pool is strict, and the event has a slot for another time or pool, `existing`."""

    code: ClassVar[str] = "slot-conflict"
    event_id: str
    existing: Mapping[str, object]

    def __str__(self) -> str:
        return f"event {self.event_id!r} has a slot for another time or pool"


@dataclass(eq=False)
class PoolExhausted(Unavailable):
    """A pool has no free slot before the end of all calendars, the year 2200."""

    code: ClassVar[str] = "pool-exhausted"
    exposes: ClassVar[Exposure] = "details"
    pool: str

    def __str__(self) -> str:
        return f"pool {self.pool!r} has no free slot before the year 2200"
