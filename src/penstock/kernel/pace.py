"""When an item of a rate-limited lane may start in this process: in time for its slot, or not."""

from dataclasses import dataclass
from datetime import timedelta

# How late an item may start in any case: a busy process is often late by this much.
LATE_MIN = timedelta(milliseconds=30)
# A process may be suspended between the check and the start of the handler; it then starts one item
# later than that. At 1,000 per second there is room for five processes at once.
MARGIN = timedelta(milliseconds=5)
# The longest delay that claims allow for; shorter than the time for which they assign slots ahead.
DELAY_MAX = timedelta(milliseconds=150)
DELAY_SHARE = 0.2  # Of the last claim in the average: a single slow answer must not waste slots.
# A process that is always late must still make progress: after missing all slots for so long, it
# starts one item all the same.
STALL_MAX = timedelta(seconds=1)


def tolerance(rate: float, burst: int, *, error: float = 0.0) -> float:
    """Return how many seconds after its slot an item may start; slots are known to `error`.

    With `burst` slots, the starts of any second have slots in a stretch of one second and `burst`
    slots: never more than rate plus burst.
    """
    return max(LATE_MIN.total_seconds(), burst / rate - MARGIN.total_seconds() - 2 * error)


@dataclass(slots=True)
class Pace:
    """The starts of one lane in this process. Instants are of the monotonic clock."""

    delay: float = LATE_MIN.total_seconds()  # Seconds after a claim in which no item can start.
    _missing_since: float | None = None  # The first missed slot since the last start.

    def received(self, now: float, *, claimed_at: float) -> None:
        """Note how long after the claim its items arrived; the next ones allow for twice that."""
        seen = min(2 * (now - claimed_at), DELAY_MAX.total_seconds())
        wanted = max(seen, LATE_MIN.total_seconds())
        self.delay += DELAY_SHARE * (wanted - self.delay)

    def has_missed(self, slot_at: float, now: float, *, late_max: float) -> bool:
        """Return whether an item that would start now is too late and must get another slot."""
        if now - slot_at >= late_max:
            if self._missing_since is None:
                self._missing_since = now
            if now - self._missing_since < STALL_MAX.total_seconds():
                return True
        self._missing_since = None
        return False
