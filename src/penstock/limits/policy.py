"""The numbers and the arithmetic that all gates share. Pure; the random number is given.

Instants and lengths are whole microseconds here, instants since 1970, so that Python and Lua,
whose numbers are all floats, reckon exactly alike.
"""

from datetime import datetime, timedelta
from math import ceil

from penstock.base.clock import EPOCH, MICROSECOND
from penstock.limits.gate import Rules

MILLION = 1_000_000  # Microseconds in a second. Also the parts that a random number is given in.

# A caller waits this long for its instant himself. That fills the rate although callers come back
# a little early or late; longer, and he would hold a slot and a worker's place for nothing.
AHEAD = 250_000
# How far ahead refused callers are lined up. What waits longer does not see a better rate soon
# enough; what does not fit is told to come back in the second half of this time, at random.
LINE_MAX = 600 * MILLION
# The same for a full semaphore, where the length of the line rests on a guess.
CROWD_MAX = 60 * MILLION
# If for so long and an interval nobody has taken the next free instant, those in the line are not
# coming: they were cancelled. Who is only late is there sooner.
LINE_FORGOTTEN = MILLION
# A call is taken to last at least so long, and nobody is sent away for less: a timer is not much
# more exact than that.
HOLD_MIN = 2_000
# Refusals until an instant are spread behind it, by this much and a tenth of the time to wait.
SPREAD = MILLION
# How soon to come back while all probes are out: about as long as an answer takes.
PROBING = MILLION
# A breaker that nobody has touched for so long is forgotten: old failures say nothing about today.
KEPT = 3600 * MILLION
# A longer rest is taken for a mistake of the endpoint.
REST_MAX = 86_400 * MILLION


def microseconds(length: timedelta) -> int:
    """Return a length as a whole number."""
    return length // MICROSECOND


def instant(at: int) -> datetime:
    """Return an instant as people see it."""
    return EPOCH + timedelta(microseconds=at)


def interval_of(rules: Rules) -> int:
    """Return the least distance between two calls, 0 without a limit; rounded up, to be kept."""
    return 0 if rules.rate is None else ceil(MILLION / rules.rate)


def millionths(chance: float) -> int:
    """Return a random number from [0, 1) in millionths."""
    return int(chance * MILLION)


def spread(until: int, now: int, *, chance: int) -> int:
    """Return how long to stay away until an instant and a little longer, at random."""
    left = until - now
    return left + (SPREAD + left // 10) * chance // MILLION


def line_up(
    line: int, now: int, *, first_at: int, step: int, longest: int, chance: int
) -> tuple[int, int]:
    """Return the next place in a line of refused callers, and where the line ends then.

    The line is only the instant of its last place: when that has passed, there is no line.
    """
    at = max(line + step, first_at)
    if at <= now + longest:
        return at, at
    half = longest // 2
    return now + half + half * chance // MILLION, now + longest
