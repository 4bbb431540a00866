"""The words of a gate: who wants to call an endpoint enters first, and leaves when he has called.

A gate decides in this order: breaker, rest, rate, semaphore. It takes all or nothing: whoever is
refused by the last of them has used up nothing of the others. What a refused caller should do is
to come back after `Refusal.after`; refusals are spread, so that few are refused twice.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, Protocol, TypeAlias

import msgspec

Reason: TypeAlias = Literal["circuit_open", "resting", "rate_limited", "crowded"]

# alive: the endpoint answered sanely. Also with 429 or a permanent 4xx, because a bad payload must
# not open the breaker of a healthy endpoint. failing: 5xx, timeout, network error. unknown: the
# call was cancelled; its slot is given back and nothing is judged.
Verdict: TypeAlias = Literal["alive", "failing", "unknown"]

Phase: TypeAlias = Literal["closed", "open", "half_open"]


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What one endpoint bears. Hold on to it: the gates recognise the same object faster.

    `rate` is in calls per second, and None is no limit. `slot_ttl` must be longer than the longest
    call, or else the slot of a call under way is given to another.
    """

    rate: float | None = None
    concurrency: int = 100
    slot_ttl: timedelta = timedelta(seconds=30)
    failures_max: int = 5
    open_for: timedelta = timedelta(seconds=30)
    probes_max: int = 3

    def __post_init__(self) -> None:
        assert self.rate is None or self.rate > 0, "pause the lane instead"
        assert min(self.concurrency, self.failures_max, self.probes_max) >= 1
        assert min(self.slot_ttl, self.open_for) > timedelta(0)


class Pass(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The right to call once, `wait` seconds from now and not before; to be given to `leave`.

    A msgspec struct although it never goes on the wire: one is made per call.
    """

    key: str
    slot: str
    wait: float
    entered_at: int  # Microseconds since 1970, on the gate's own clock.
    is_probe: bool = False  # The breaker is half-open, and this call decides.
    is_local: bool = False  # Only this process knows of it.


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """Not now: come back in `after`. Costs no attempt."""

    after: timedelta
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """How it stands with a key, for people."""

    breaker: Phase = "closed"
    failures: int = 0  # In a row, while the breaker is closed.
    open_until: datetime | None = None
    resting_until: datetime | None = None
    slots_in_use: int = 0


class Gate(Protocol):
    """Lets calls in and takes note of how they ended. Keys are independent of each other."""

    async def enter(self, key: str, rules: Rules) -> Pass | Refusal: ...

    async def leave(
        self, passed: Pass, rules: Rules, *, verdict: Verdict, rest: timedelta | None = None
    ) -> None:
        """Give the slot back; a repeat is harmless with the verdict unknown.

        `rest` closes the key for that long from now, whatever the verdict: the endpoint said
        Retry-After. A rest never shortens another.
        """
        ...

    async def inspect(self, key: str) -> Condition: ...
