"""What time it is, as a value that tests can own. Where rows are compared, the database decides."""

from datetime import UTC, datetime, timedelta
from time import time_ns
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class Clock(Protocol):
    """Tells how many microseconds have passed since 1970."""

    def microseconds(self) -> int: ...


class SystemClock:
    """The machine's clock."""

    def microseconds(self) -> int:
        """Return the current instant; as a number, which takes a quarter of the time."""
        return time_ns() // 1_000


class FakeClock:
    """A clock that stands still until it is advanced."""

    def __init__(self, start: datetime) -> None:
        assert start.tzinfo is not None, "a naive instant would compare wrongly with the database's"
        self._now = start

    def now(self) -> datetime:
        """Return the instant last set."""
        return self._now

    def microseconds(self) -> int:
        """Return the instant last set, as other clocks tell it."""
        return (self._now - EPOCH) // MICROSECOND

    def advance(self, step: timedelta) -> datetime:
        """Move by `step` (a negative one jumps back, as clocks do) and return the new instant."""
        self._now += step
        return self._now
