"""The database's clock, as this process knows it from the answers to its own statements."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from time import monotonic

from penstock.base.clock import Clock, SystemClock, instant
from penstock.postgres.pool import Queries
from penstock.postgres.statement import statement

READ_CLOCK = statement(__package__, "read_clock.sql")

# A process whose own clock is further off is reported.
OFFSET_MAX = timedelta(seconds=2)
DRIFT = 0.0005  # Seconds per second: NTP changes the speed of a clock by at most this much.


@dataclass(slots=True)
class DatabaseClock:
    """The instant of the database, counted on the monotonic clock of this process.

    The server reads its clock after a statement was sent and before its answer was read, so every
    answer limits the difference of the two clocks from both sides; the limits of many answers are
    combined. A slow answer therefore does no harm. Before the first answer this is the clock of
    the machine.
    """

    local: Clock = field(default_factory=SystemClock)
    # Limits of the database's clock minus the monotonic one, in seconds.
    _low: float = float("-inf")
    _high: float = float("inf")
    _observed_at: float = float("-inf")
    is_known: bool = False  # Whether there was an answer.
    _ahead: float = 0.0  # The middle of the limits, once there was an answer.

    def observe(
        self, *, sent_at: float, received_at: float, answered_at: float, read_at: float
    ) -> None:
        """Measure by one statement: sent and read here, received and answered by the server.

        `sent_at` and `read_at` are monotonic; the others are seconds since 1970.
        """
        low, high = answered_at - read_at, received_at - sent_at
        if self.is_known:
            drift = DRIFT * max(0.0, read_at - self._observed_at)
            # Limits that contradict each other: one of the clocks has jumped.
            if low <= self._high + drift and self._low - drift <= high:
                low, high = max(low, self._low - drift), min(high, self._high + drift)
        self._low, self._high, self._observed_at = low, high, read_at
        self._ahead = (low + high) / 2
        self.is_known = True

    @property
    def error(self) -> float:
        """The seconds by which this clock is wrong at most, in either direction."""
        return (self._high - self._low) / 2 if self.is_known else 0.0

    @property
    def offset(self) -> float | None:
        """The seconds by which the machine's clock is ahead of the database's, if it is known."""
        if not self.is_known:
            return None
        return self.local.microseconds() / 1_000_000 - monotonic() - self._ahead

    def microseconds(self) -> int:
        """Return the database's current instant in microseconds since 1970."""
        if not self.is_known:
            return self.local.microseconds()
        return int((monotonic() + self._ahead) * 1_000_000)

    def to_monotonic(self, at: datetime) -> float:
        """Return the monotonic instant at which the database's clock shows `at`."""
        assert self.is_known, "an instant of the database comes with an answer"
        return at.timestamp() - self._ahead


async def read_instant(db: Queries, clock: Clock) -> datetime:
    """Return the current instant of a clock; that of the database is measured first.

    For a process that makes no claims, or has made none yet: its own clock may be wrong, and the
    monotonic one stops while the machine is suspended.
    """
    if isinstance(clock, DatabaseClock):
        sent_at = monotonic()
        row = await db.fetchrow(READ_CLOCK)
        assert row is not None, "the statement has one row"
        clock.observe(
            sent_at=sent_at,
            received_at=row["received_at"],
            answered_at=row["answered_at"],
            read_at=monotonic(),
        )
    return instant(clock)
