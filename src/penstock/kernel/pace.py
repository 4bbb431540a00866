"""Check the rate again when items start: starts delayed by a stall must not come in a burst."""

from dataclasses import dataclass


@dataclass(slots=True)
class Pace:
    """Allows starts at `rate` per second, up to `burst` at once after an idle time.

    The claim has spaced the slots already, so this delays no start that is on time.
    """

    _next_at: float = float("-inf")

    def turn(self, now: float, *, rate: float, burst: int) -> float:
        """Reserve the next start and return its instant, on the clock of `now`."""
        width = 1 / rate
        at = max(self._next_at, now - (burst - 1) * width)
        self._next_at = at + width
        return max(at, now)
