"""What an answer, or the lack of one, means for a delivery and for its endpoint. Pure."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Literal

from penstock.limits.gate import Verdict

RETRY_AFTER_MAX = timedelta(hours=24)  # A longer wait is treated as a mistake of the endpoint.
# They say "not now" and not "never".
PASSING = frozenset({408, 425, 429})
GONE = 410

Disposition = Literal["delivered", "retry", "dead", "gone"]


@dataclass(frozen=True, slots=True)
class Classification:
    """What happens to the delivery, the verdict on its endpoint, and a cooldown asked for."""

    disposition: Disposition
    verdict: Verdict
    cooldown: timedelta | None = None


DELIVERED = Classification("delivered", "alive")
DEAD = Classification("dead", "alive")
FAILING = Classification("retry", "failing")
UNREACHED = Classification("retry", "unknown")  # Nothing was sent.


def classify(status: int, retry_after: str | None, *, now: datetime) -> Classification:
    """Classify by the status and the Retry-After header.

    A permanent refusal shows that the endpoint is alive: a bad payload must not close the way for
    all others. Redirects are refusals; following one would lead where nobody has checked.
    """
    if is_success(status):
        return DELIVERED
    if status == GONE:
        return Classification("gone", "alive")
    if status in PASSING:
        return Classification("retry", "alive", read_retry_after(retry_after, now=now))
    if status >= 500:
        return Classification("retry", "failing", read_retry_after(retry_after, now=now))
    return DEAD


def is_success(status: int) -> bool:
    """Say whether the endpoint has taken the delivery."""
    return 200 <= status < 300


def read_retry_after(value: str | None, *, now: datetime) -> timedelta | None:
    """Return how long to wait, from seconds or a date; None for what says neither."""
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        # A very long number is also capped.
        return min(timedelta(seconds=int(value[:9])), RETRY_AFTER_MAX)
    try:
        at = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max(timedelta(0), min(at - now, RETRY_AFTER_MAX))
