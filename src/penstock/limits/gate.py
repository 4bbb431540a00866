"""The types of gates: a caller enters before its call, and leaves after it. All or nothing.

`Gate` checks, for one endpoint, breaker, cooldown, rate and semaphore, in this order; `KeyGate` the
rates and semaphores of several keys, for one instant. A refused caller comes back after
`Refusal.after`; refusals are spread in time, so that few calls are refused twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, Protocol, TypeAlias

import msgspec

RefusalReason: TypeAlias = Literal[
    "circuit_open", "cooldown", "rate_limited", "concurrency_limited"
]

# alive: the endpoint works. 429 or a permanent 4xx also count as alive, because a bad payload must
# not open the breaker of a healthy endpoint. failing: 5xx, timeout, network error. unknown: the
# call was cancelled; its permit is returned and the breaker is not changed.
Verdict: TypeAlias = Literal["alive", "failing", "unknown"]

BreakerPhase: TypeAlias = Literal["closed", "open", "half_open"]


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one endpoint. Reuse the object: gates recognise the same one faster.

    `rate` is in calls per second, and None is no limit. `permit_ttl` must be longer than the
    longest call, or the permit of a call in progress is given to another.
    """

    rate: float | None = None
    concurrency: int = 100
    permit_ttl: timedelta = timedelta(seconds=30)
    failures_max: int = 5
    open_for: timedelta = timedelta(seconds=30)
    probes_max: int = 3

    def __post_init__(self) -> None:
        assert self.rate is None or self.rate > 0, "pause the lane instead"
        assert min(self.concurrency, self.failures_max, self.probes_max) >= 1
        assert min(self.permit_ttl, self.open_for) > timedelta(0)


class Permit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The right to call once, `wait` seconds from now and not before; to be passed to `leave`.

    A msgspec struct although it never goes on the wire: one is made per call.
    """

    key: str
    id: str
    wait: float
    entered_at: int  # Microseconds since 1970, on the gate's own clock.
    is_probe: bool = False  # The breaker is half-open, and this call decides.
    is_local: bool = False  # Only this process knows it.


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """No call now; try again in `after`. Costs no attempt. `key` says which of several refused."""

    after: timedelta
    reason: RefusalReason
    key: str | None = None


class Limit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The limit of one key, without a breaker; None is no limit. `permit_ttl` is as in Rules."""

    key: str
    rate: float | None = None
    concurrency: int | None = None
    permit_ttl: timedelta = timedelta(seconds=30)


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """The right to call once, `wait` seconds from now and not before, under all of some limits.

    It has a permit of each key with a concurrency; the others need no return.
    """

    wait: float
    permits: tuple[Permit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStatus:
    """The present state of a key's limits, for people."""

    breaker: BreakerPhase = "closed"
    failures: int = 0  # In a row, while the breaker is closed.
    open_until: datetime | None = None
    cooldown_until: datetime | None = None
    permits_in_use: int = 0


class Gate(Protocol):
    """Admits calls and records how they ended. Keys are independent of each other."""

    async def enter(self, key: str, rules: Rules) -> Permit | Refusal: ...

    async def leave(
        self, permit: Permit, rules: Rules, *, verdict: Verdict, cooldown: timedelta | None = None
    ) -> None:
        """Return the permit; a repeat is harmless with the verdict unknown.

        `cooldown` closes the key for that long from now, whatever the verdict: the endpoint sent
        Retry-After. A cooldown never shortens another.
        """
        ...

    async def inspect(self, key: str) -> KeyStatus: ...


class KeyGate(Protocol):
    """Admits calls that several keys limit. Its keys must not be those of a Gate's calls."""

    async def enter_all(self, limits: Sequence[Limit]) -> Admission | Refusal:
        """Take an instant of all rates and a permit of all semaphores, or nothing."""
        ...

    async def leave_all(self, admission: Admission) -> None: ...


class ProcessGate(Gate, KeyGate, Protocol):
    """The one gate of a process, for all limits."""
