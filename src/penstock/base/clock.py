"""The current time, which tests can replace. Where rows are compared, the database decides."""

import time
from datetime import UTC, datetime, timedelta
from time import time_ns
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


# CLOCK_MONOTONIC of Linux stops while the machine is suspended; that of macOS does not.
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_seconds() -> float:
    """Return seconds on a clock that never goes back and counts the time of a suspension."""
    return time.clock_gettime(_BOOT_CLOCK)


def suspended_seconds() -> float:
    """Return how long the machine was suspended since it was started."""
    return boot_seconds() - time.monotonic()


class Clock(Protocol):
    """Returns the current instant in microseconds since 1970."""

    def microseconds(self) -> int: ...


class SystemClock:
    """The machine's clock."""

    def microseconds(self) -> int:
        """Return the current instant; a number takes a quarter of the time of a datetime."""
        return time_ns() // 1_000


def instant(clock: Clock) -> datetime:
    """Return the current instant of a clock, in UTC."""
    return EPOCH + clock.microseconds() * MICROSECOND


class FakeClock:
    """A clock that only moves when it is advanced."""

    def __init__(self, start: datetime) -> None:
        assert start.tzinfo is not None, "a naive instant would compare wrongly with the database's"
        self._now = start

    def now(self) -> datetime:
        """Return the instant last set."""
        return self._now

    def microseconds(self) -> int:
        """Return the instant last set, in microseconds since 1970."""
        return (self._now - EPOCH) // MICROSECOND

    def advance(self, step: timedelta) -> datetime:
        """Move by `step` (a negative one goes back) and return the new instant."""
        self._now += step
        return self._now
