"""The status of one key, computed the same way by all gates."""

from collections.abc import Iterable

from penstock.limits.breaker import Breaker
from penstock.limits.gate import KeyStatus
from penstock.limits.policy import instant


def key_status_of(
    breaker: Breaker | None, now: int, *, cooldown_until: int, permits_until: Iterable[float]
) -> KeyStatus:
    """Return the status at `now`; whatever has expired by then does not count."""
    breaker = breaker or Breaker()
    phase = breaker.phase(now)
    return KeyStatus(
        breaker=phase,
        failures=breaker.failures if breaker.forget_at > now else 0,
        open_until=instant(breaker.open_until) if phase == "open" else None,
        cooldown_until=instant(cooldown_until) if cooldown_until > now else None,
        permits_in_use=sum(until > now for until in permits_until),
    )
