"""The delay before an attempt is repeated. Pure arithmetic; the caller passes the random number."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from penstock.kernel.policy import FieldRule


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Exponential, capped, with symmetric jitter.

    The first delay is base * multiplier ** first_exponent: 0 starts at the base, 1 at twice the
    base when the multiplier is 2.
    """

    base: Annotated[
        timedelta,
        FieldRule(
            "Where the delay begins.", range="above 0, at most the cap", setting="backoff_base"
        ),
    ] = timedelta(seconds=1)
    multiplier: Annotated[float, FieldRule("How the delay grows.", low=1, high=100)] = 2.0
    cap: Annotated[
        timedelta,
        FieldRule(
            "No delay is longer, jitter included.",
            high=timedelta(days=30),
            range="at most 30 days",
            setting="backoff_max",
        ),
    ] = timedelta(hours=1)
    jitter: Annotated[
        float,
        FieldRule(
            "The delay varies by this share, up and down.",
            low=0,
            high=1,
            setting="backoff_jitter",
        ),
    ] = 0.1
    first_exponent: Annotated[
        int,
        FieldRule(
            "0: the first delay is the base; 1: the base times the multiplier.", low=0, high=10
        ),
    ] = 0

    def delay(self, failures: int, *, chance: float) -> timedelta:
        """Return the wait after `failures` (from 1) failed attempts; `chance` is in [0, 1).

        Capped before and after the jitter: before, so that a large exponent keeps its spread;
        after, so that no delay exceeds the cap.
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
