"""The gate of one process: a few comparisons per call, no lock and no wait.

Nothing here yields to the event loop, so each decision is atomic. Idle keys are dropped a few at a
time, every few calls.
"""

import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import count

import msgspec

from penstock.base.clock import Clock, SystemClock
from penstock.limits.breaker import Breaker
from penstock.limits.gate import (
    Admission,
    KeyStatus,
    Limit,
    Permit,
    Refusal,
    RefusalReason,
    Rules,
    Verdict,
)
from penstock.limits.key_status import key_status_of
from penstock.limits.policy import (
    CALL_MIN,
    COOLDOWN_MAX,
    MILLION,
    QUEUE_ABANDONED_AFTER,
    RATE_QUEUE_MAX,
    SEMAPHORE_QUEUE_MAX,
    WAIT_MAX,
    Gaps,
    first_free,
    gaps_after,
    interval_of,
    microseconds,
    millionths,
    place_in_queue,
    spread,
)

# Two keys are checked per call: that keeps up with any number of new ones.
SWEEP_EVERY = 16
SWEEP_KEYS = 32


class LocalGate:
    """Applies the rules to the calls of this process, independent of other processes."""

    def __init__(
        self, clock: Clock | None = None, *, chance: Callable[[], float] = random.random
    ) -> None:
        self._clock = clock or SystemClock()
        self._chance = chance
        self._keys: dict[str, _KeyState] = {}
        self._numbers = count(1)
        self._until_sweep = SWEEP_EVERY
        self._to_sweep: list[str] = []

    async def enter(self, key: str, rules: Rules) -> Permit | Refusal:
        """Return a permit, for now or shortly after, or a refusal that says when to come back."""
        now = self._clock.microseconds()
        self._until_sweep -= 1
        if not self._until_sweep:
            self._sweep(now)
        state = self._keys.get(key) or self._begin(key)
        if state.rules is not rules:
            state.adopt(rules)

        # All checks come before all changes: a refused call must not have used anything up.
        is_probe = False
        if state.breaker is not None and state.breaker.is_tripped(now):
            blocked_until = state.breaker.blocked_until(
                now, open_for=state.open_for, probes_max=rules.probes_max
            )
            if blocked_until:
                # A call that came back during a cooldown would be refused again.
                until = max(blocked_until, state.cooldown_until)
                return self._refuse_until(until, now, "circuit_open")
            is_probe = True
        if now < state.cooldown_until:
            return self._refuse_until(state.cooldown_until, now, "cooldown")
        at = now
        if state.interval:
            at = max(state.free_at(now), now)
            if at - now > WAIT_MAX:
                return self._queue_for_rate(state, now, free_at=at)
        if len(state.permits) >= rules.concurrency and state.is_full(now):
            return self._queue_for_semaphore(state, now)

        permit_id = str(next(self._numbers))
        state.take(permit_id, at, now, is_probe=is_probe)
        return Permit(
            key=key,
            id=permit_id,
            wait=(at - now) / MILLION,
            entered_at=now,
            is_probe=is_probe,
            is_local=True,
        )

    async def leave(
        self, permit: Permit, rules: Rules, *, verdict: Verdict, cooldown: timedelta | None = None
    ) -> None:
        """Return the permit. One that has expired, or is of another gate, is ignored."""
        state = self._keys.get(permit.key)
        if state is None:
            if verdict != "failing" and cooldown is None:
                return
            state = self._begin(permit.key)
        state.permits.pop(permit.id, None)
        if verdict == "failing" or state.breaker is not None or cooldown is not None:
            now = self._clock.microseconds()
            state.record(permit, rules, verdict, now=now)
            if cooldown is not None:
                state.cool_down(now, microseconds(cooldown))

    async def enter_all(self, limits: Sequence[Limit]) -> Admission | Refusal:
        """Take an instant of all rates and a permit of all semaphores, or nothing."""
        now = self._clock.microseconds()
        self._until_sweep -= 1
        if not self._until_sweep:
            self._sweep(now)
        states = [self._keys.get(limit.key) or self._begin(limit.key) for limit in limits]
        for state, limit in zip(states, limits, strict=True):
            state.adopt_limit(limit)
        at, last = _common_instant(states, now)
        if at - now > WAIT_MAX:
            refusal = self._queue_for_rate(states[last], now, free_at=at)
            return msgspec.structs.replace(refusal, key=limits[last].key)
        for state, limit in zip(states, limits, strict=True):
            if state.is_full(now):
                refusal = self._queue_for_semaphore(state, now)
                return msgspec.structs.replace(refusal, key=limit.key)

        permits = tuple(
            Permit(key=limit.key, id=permit_id, wait=0, entered_at=now, is_local=True)
            for state, limit in zip(states, limits, strict=True)
            if (permit_id := state.take_limit(next(self._numbers), at, now)) is not None
        )
        return Admission(wait=(at - now) / MILLION, permits=permits)

    async def leave_all(self, admission: Admission) -> None:
        """Return the permits; those that have expired, or are of another gate, are ignored."""
        for permit in admission.permits:
            state = self._keys.get(permit.key)
            if state is not None:
                state.permits.pop(permit.id, None)

    async def inspect(self, key: str) -> KeyStatus:
        """Return the present status of a key."""
        state = self._keys.get(key)
        if state is None:
            return KeyStatus()
        now = self._clock.microseconds()
        return key_status_of(
            state.breaker,
            now,
            cooldown_until=state.cooldown_until,
            permits_until=state.permits.values(),
        )

    def _begin(self, key: str) -> "_KeyState":
        state = self._keys[key] = _KeyState()
        return state

    def _refuse_until(self, until: int, now: int, reason: RefusalReason) -> Refusal:
        """Refuse until an instant, and a random time after it."""
        after = spread(until, now, chance=millionths(self._chance()))
        return Refusal(timedelta(microseconds=after), reason)

    def _queue_for_rate(self, state: "_KeyState", now: int, *, free_at: int) -> Refusal:
        """Refuse until the first instant of the rate that no earlier refused call was given."""
        at, state.rate_queue_until = place_in_queue(
            state.rate_queue_until,
            now,
            first_at=free_at,
            step=state.interval,
            longest=RATE_QUEUE_MAX,
            chance=millionths(self._chance()),
        )
        # The call comes back a little before its instant and waits, so that it is not late for it.
        return Refusal(timedelta(microseconds=at - WAIT_MAX // 2 - now), "rate_limited")

    def _queue_for_semaphore(self, state: "_KeyState", now: int) -> Refusal:
        """Refuse until a permit is expected that no earlier refused call was given."""
        step = state.release_interval(now)
        at, state.semaphore_queue_until = place_in_queue(
            state.semaphore_queue_until,
            now,
            first_at=now + max(step, CALL_MIN),
            step=step,
            longest=SEMAPHORE_QUEUE_MAX,
            chance=millionths(self._chance()),
        )
        return Refusal(timedelta(microseconds=at - now), "concurrency_limited")

    def _sweep(self, now: int) -> None:
        """Drop the idle keys among the next few, in turn."""
        self._until_sweep = SWEEP_EVERY
        if not self._to_sweep:
            self._to_sweep = list(self._keys)
        for key in self._to_sweep[-SWEEP_KEYS:]:
            state = self._keys.get(key)
            if state is not None and state.is_idle(now):
                del self._keys[key]
        del self._to_sweep[-SWEEP_KEYS:]


def _common_instant(states: Sequence["_KeyState"], now: int) -> tuple[int, int]:
    """Return the first instant at which all rates admit a call, and the index of the last one.

    Not beyond WAIT_MAX: later than that, it is only the first instant of one of them.
    """
    at, last = now, 0
    is_common = False
    while not is_common and at - now <= WAIT_MAX:
        is_common = True
        for index, state in enumerate(states):
            free_at = state.first_free(at, now)
            if free_at > at:
                at, last, is_common = free_at, index, False
    return at, last


class _KeyState:
    """The state of one key. Instants and lengths are microseconds; 0 is never."""

    __slots__ = (
        "breaker", "concurrency", "cooldown_until", "first_expires_at", "gaps", "interval",
        "last_at", "last_expires_at", "open_for", "permit_ttl", "permits", "rate_queue_until",
        "rules", "semaphore_queue_until",
    )  # fmt: skip

    def __init__(self) -> None:
        self.rules: Rules | None = None
        self.interval = 0
        self.concurrency: int | None = None
        self.permit_ttl = 0
        self.open_for = 0
        self.breaker: Breaker | None = None
        self.cooldown_until = 0
        self.last_at = 0  # The latest instant that was taken.
        self.gaps: Gaps = ()  # Of a key that was entered together with others.
        self.rate_queue_until = 0  # The last places given to refused calls.
        self.semaphore_queue_until = 0
        self.permits: dict[str, int] = {}  # By id, when each expires.
        self.first_expires_at = 0  # No permit expires before the first, none after the last.
        self.last_expires_at = 0

    def adopt(self, rules: Rules) -> None:
        """Apply these rules from now on."""
        self.rules = rules
        self.interval = interval_of(rules)
        self.concurrency = rules.concurrency
        self.permit_ttl = microseconds(rules.permit_ttl)
        self.open_for = microseconds(rules.open_for)

    def adopt_limit(self, limit: Limit) -> None:
        """Apply this limit from now on."""
        self.interval = interval_of(limit)
        self.concurrency = limit.concurrency
        self.permit_ttl = microseconds(limit.permit_ttl)

    def free_at(self, now: int) -> int:
        """Return the next free instant of the rate, which may have passed."""
        # Further ahead than any permit means that the clock was set back: start again.
        return self.last_at + self.interval if self.last_at <= now + WAIT_MAX else 0

    def is_full(self, now: int) -> bool:
        """Return whether all permits are in use, after dropping those of dead workers."""
        if self.concurrency is None:
            return False
        if self.first_expires_at <= now:
            self.permits = {id_: until for id_, until in self.permits.items() if until > now}
            self.first_expires_at = min(self.permits.values(), default=now)
        return len(self.permits) >= self.concurrency

    def release_interval(self, now: int) -> int:
        """Return how often a permit is returned, estimated from those in use.

        Half of them are older than the median, and a call in progress is half done on average.
        """
        assert self.concurrency is not None, "only a limited key is full"
        median = sorted(self.permits.values())[len(self.permits) // 2]
        age = now - (median - self.permit_ttl)
        return max(2 * age, CALL_MIN) // self.concurrency

    def first_free(self, at: int, now: int) -> int:
        """Return the first free instant of the rate from `at` on."""
        return first_free(self.gaps, self.free_at(now), at) if self.interval else at

    def take(self, permit_id: str, at: int, now: int, *, is_probe: bool) -> None:
        """Make all changes of an admitted call."""
        self._take_permit(permit_id, until=at + self.permit_ttl)
        if self.interval:
            self._drop_abandoned_queue(now)
            self.last_at = at
        if is_probe:
            assert self.breaker is not None
            self.breaker.probes[permit_id] = at + self.permit_ttl

    def take_limit(self, number: int, at: int, now: int) -> str | None:
        """Make all changes of a call that was admitted with others; return its permit, if any."""
        if self.interval:
            self._drop_abandoned_queue(now)
            free_at = self.free_at(now)
            self.gaps = gaps_after(self.gaps, at, now, free_at=free_at, interval=self.interval)
            if at >= free_at:
                self.last_at = at
        if self.concurrency is None:
            return None
        permit_id = str(number)
        self._take_permit(permit_id, until=at + self.permit_ttl)
        return permit_id

    def _take_permit(self, permit_id: str, *, until: int) -> None:
        self.permits[permit_id] = until
        self.first_expires_at = min(self.first_expires_at, until)
        self.last_expires_at = max(self.last_expires_at, until)

    def _drop_abandoned_queue(self, now: int) -> None:
        if (
            self.rate_queue_until
            and now - self.free_at(now) > QUEUE_ABANDONED_AFTER + self.interval
        ):
            self.rate_queue_until = 0

    def record(self, permit: Permit, rules: Rules, verdict: Verdict, *, now: int) -> None:
        """Record the verdict of a call in the breaker; the first failure creates it."""
        open_for = microseconds(rules.open_for)
        if self.breaker is not None and self.breaker.forget_at <= now:
            self.breaker = None
        if permit.is_probe:
            if self.breaker is not None:
                self.breaker.record_probe(permit.id, verdict, now, open_for=open_for)
            return
        if self.breaker is None:
            if verdict != "failing":
                return
            self.breaker = Breaker()
        self.breaker.record(
            verdict,
            now,
            entered_at=permit.entered_at,
            failures_max=rules.failures_max,
            open_for=open_for,
        )

    def cool_down(self, now: int, length: int) -> None:
        """Close the key for this long."""
        self.cooldown_until = max(self.cooldown_until, now + min(length, COOLDOWN_MAX))

    def is_idle(self, now: int) -> bool:
        """Return whether a new key would behave the same."""
        return (
            (not self.permits or self.last_expires_at <= now)
            and self.cooldown_until <= now
            and self.last_at + self.interval <= now
            and max(self.rate_queue_until, self.semaphore_queue_until) <= now
            and (self.breaker is None or self.breaker.forget_at <= now)
        )
