"""How it stands with a key, told alike by all gates."""

from collections.abc import Iterable

from penstock.limits.breaker import Breaker
from penstock.limits.gate import Condition
from penstock.limits.policy import instant


def condition_of(
    breaker: Breaker | None, now: int, *, rest_until: int, slots_until: Iterable[float]
) -> Condition:
    """Return what people may want to know."""
    breaker = breaker or Breaker()
    phase = breaker.phase(now)
    return Condition(
        breaker=phase,
        failures=breaker.failures if breaker.forget_at > now else 0,
        open_until=instant(breaker.open_until) if phase == "open" else None,
        resting_until=instant(rest_until) if rest_until > now else None,
        slots_in_use=sum(until > now for until in slots_until),
    )
