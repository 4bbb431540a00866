"""How long to wait before an attempt is repeated. Pure arithmetic; the random number is given."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Exponential, capped, with symmetric jitter.

    The first delay is base * multiplier ** first_exponent: 0 starts at the base, 1 at twice the
    base when the multiplier is 2.
    """

    base: timedelta = timedelta(seconds=1)
    multiplier: float = 2.0
    cap: timedelta = timedelta(hours=1)
    jitter: float = 0.1
    first_exponent: int = 0

    def delay(self, failures: int, *, chance: float) -> timedelta:
        """Return the wait after `failures` (from 1) failed attempts; `chance` is in [0, 1).

        Capped before and after the jitter: before, so that a large exponent keeps its spread;
        after, so that the cap is a promise.
        """
        raw = min(self._raw(failures), self.cap.total_seconds())
        factor = 1 + self.jitter * (2 * chance - 1)
        return timedelta(seconds=min(raw * factor, self.cap.total_seconds()))

    def _raw(self, failures: int) -> float:
        try:
            growth = self.multiplier ** (failures - 1 + self.first_exponent)
        except OverflowError:
            return float("inf")
        return self.base.total_seconds() * growth
