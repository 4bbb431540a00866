"""The constants and the arithmetic that all gates share. Pure; the random number is a parameter.

Instants and lengths are whole microseconds here, instants since 1970, so that Python and Lua,
whose numbers are all floats, compute exactly the same results.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from math import ceil
from typing import TypeAlias

from penstock.base.clock import EPOCH, MICROSECOND
from penstock.limits.gate import Limit, Rules

MILLION = 1_000_000  # Microseconds in a second. Random numbers are also given in millionths.

# A permit is given up to this long before its instant, and the caller waits. That fills the rate
# although callers come back a little early or late; a longer wait would hold a permit and a
# worker's place for nothing.
WAIT_MAX = 250_000
# How far ahead the rate queues refused calls. A call that waits longer would not notice a higher
# rate soon enough. When the queue is full, a call comes back at random in the second half of it.
RATE_QUEUE_MAX = 600 * MILLION
# The same for a full semaphore, where the length of the queue is only an estimate.
SEMAPHORE_QUEUE_MAX = 60 * MILLION
# If nobody has taken the next free instant for this long and one interval, the calls in the queue
# were cancelled. Calls that are only late come sooner.
QUEUE_ABANDONED_AFTER = MILLION
# The shortest assumed duration of a call, and the shortest refusal: timers are not more exact.
CALL_MIN = 2_000
# Refusals until an instant are spread after it, by this much and a tenth of the time to wait.
SPREAD = MILLION
# When to come back while all probes are in progress: about as long as a response takes.
PROBE_WAIT = MILLION
# A breaker that was not used for this long is dropped: old failures say nothing about the present.
BREAKER_KEPT = 3600 * MILLION
# A longer cooldown is treated as a mistake of the endpoint.
COOLDOWN_MAX = 86_400 * MILLION
# Free stretches of a rate that are remembered; the earliest is dropped, and its instants are lost.
# There are several only while calls of many different pairs of keys wait for their instants.
GAPS_MAX = 16

# Stretches before a rate's last instant in which each instant is free: calls that another key
# delays leave them. Ascending, both ends included.
Gaps: TypeAlias = Sequence[tuple[int, int]]


def microseconds(length: timedelta) -> int:
    """Return a length as a whole number of microseconds."""
    return length // MICROSECOND


def instant(at: int) -> datetime:
    """Return an instant as a datetime."""
    return EPOCH + timedelta(microseconds=at)


def interval_of(rules: Rules | Limit) -> int:
    """Return the least distance between two calls, 0 without a limit; rounded up."""
    return 0 if rules.rate is None else ceil(MILLION / rules.rate)


def millionths(chance: float) -> int:
    """Return a random number from [0, 1) in millionths."""
    return int(chance * MILLION)


def spread(until: int, now: int, *, chance: int) -> int:
    """Return the time until an instant, plus a random part."""
    left = until - now
    return left + (SPREAD + left // 10) * chance // MILLION


def place_in_queue(
    queue_until: int, now: int, *, first_at: int, step: int, longest: int, chance: int
) -> tuple[int, int]:
    """Return the instant of the next place in a queue of refused calls, and the queue's new end.

    A queue is only the instant of its last place: when that has passed, the queue is empty.
    """
    at = max(queue_until + step, first_at)
    if at <= now + longest:
        return at, at
    half = longest // 2
    return now + half + half * chance // MILLION, now + longest


def first_free(gaps: Gaps, free_at: int, at: int) -> int:
    """Return the first instant of a rate from `at` on; `free_at` is that after all taken ones."""
    for begin, end in gaps:
        if at <= end:
            return max(begin, at)
    return max(free_at, at)


def gaps_after(gaps: Gaps, at: int, now: int, *, free_at: int, interval: int) -> Gaps:
    """Return the gaps of a rate once `at`, which is free, is taken; those of the past are gone."""
    stretches = [*gaps, (free_at, at)] if at >= free_at else gaps
    left: list[tuple[int, int]] = []
    for begin, end in stretches:
        is_hit = begin <= at <= end
        parts = ((begin, at - interval), (at + interval, end)) if is_hit else ((begin, end),)
        left += [(max(first, now), last) for first, last in parts if max(first, now) <= last]
    return left[-GAPS_MAX:]
