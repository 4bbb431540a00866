"""What time it is, as a value that tests can own. Where rows are compared, the database decides."""

from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Tells an aware instant in UTC."""

    def now(self) -> datetime: ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the current instant."""
        return datetime.now(UTC)


class FakeClock:
    """A clock that stands still until it is advanced."""

    def __init__(self, start: datetime) -> None:
        assert start.tzinfo is not None, "a naive instant would compare wrongly with the database's"
        self._now = start

    def now(self) -> datetime:
        """Return the instant last set."""
        return self._now

    def advance(self, step: timedelta) -> datetime:
        """Move by `step` (a negative one jumps back, as clocks do) and return the new instant."""
        self._now += step
        return self._now
