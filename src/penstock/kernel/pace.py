"""A second look at the rate when an item starts: what a stall delayed must not bunch up."""

from dataclasses import dataclass


@dataclass(slots=True)
class Pace:
    """Hands out turns to start at `rate` per second, `burst` of them at once after a quiet time.

    The claim has spaced the slots already, so this delays nothing as long as starts are on time.
    """

    _next_at: float = float("-inf")

    def turn(self, now: float, *, rate: float, burst: int) -> float:
        """Return when the next start may be, on the clock of `now`, and take that turn."""
        width = 1 / rate
        at = max(self._next_at, now - (burst - 1) * width)
        self._next_at = at + width
        return max(at, now)
