"""The gate of one process: a few comparisons per call, no lock and no wait.

Nothing here yields to the loop, so that each call is decided as one. Keys that have come to rest
are dropped in passing, a few at every so many calls.
"""

import random
from collections.abc import Callable
from datetime import timedelta
from itertools import count

from penstock.base.clock import Clock, SystemClock
from penstock.limits.breaker import Breaker
from penstock.limits.condition import condition_of
from penstock.limits.gate import Condition, Pass, Reason, Refusal, Rules, Verdict
from penstock.limits.policy import (
    AHEAD,
    CROWD_MAX,
    HOLD_MIN,
    LINE_FORGOTTEN,
    LINE_MAX,
    MILLION,
    REST_MAX,
    interval_of,
    line_up,
    microseconds,
    millionths,
    spread,
)

# Two keys are looked at for each call: that keeps up with any number of new ones.
SWEEP_EVERY = 16
SWEEP_KEYS = 32


class LocalGate:
    """Keeps the rules for the calls of this process, whatever others do."""

    def __init__(
        self, clock: Clock | None = None, *, chance: Callable[[], float] = random.random
    ) -> None:
        self._clock = clock or SystemClock()
        self._chance = chance
        self._keys: dict[str, _Key] = {}
        self._numbers = count(1)
        self._until_sweep = SWEEP_EVERY
        self._to_sweep: list[str] = []

    async def enter(self, key: str, rules: Rules) -> Pass | Refusal:
        """Let the caller in, now or in a moment, or tell it when to come back."""
        now = self._clock.microseconds()
        self._until_sweep -= 1
        if not self._until_sweep:
            self._sweep(now)
        here = self._keys.get(key)
        if here is None:
            here = self._keys[key] = _Key()
        if here.rules is not rules:
            here.adopt(rules)

        # First all questions, then all changes: who is refused must not have used anything up.
        is_probe = False
        if here.breaker is not None and here.breaker.is_tripped(now):
            shut_until = here.breaker.shut_until(
                now, open_for=here.open_for, probes_max=rules.probes_max
            )
            if shut_until:
                # To come back into a rest would be in vain.
                return self._turn_away(max(shut_until, here.rest_until), now, "circuit_open")
            is_probe = True
        if now < here.rest_until:
            return self._turn_away(here.rest_until, now, "resting")
        at = now
        if here.interval:
            at = max(here.free_at(now), now)
            if at - now > AHEAD:
                return self._line_up(here, now, free_at=at)
        if len(here.slots) >= rules.concurrency and here.is_full(now):
            return self._send_out(here, now)

        slot = str(next(self._numbers))
        here.take(slot, at, now, is_probe=is_probe)
        return Pass(
            key=key,
            slot=slot,
            wait=(at - now) / MILLION,
            entered_at=now,
            is_probe=is_probe,
            is_local=True,
        )

    async def leave(
        self, passed: Pass, rules: Rules, *, verdict: Verdict, rest: timedelta | None = None
    ) -> None:
        """Give the slot back. One that has expired, or is of another gate, is just not there."""
        here = self._keys.get(passed.key)
        if here is None:
            if verdict != "failing" and rest is None:
                return
            here = self._keys[passed.key] = _Key()
        here.slots.pop(passed.slot, None)
        if verdict == "failing" or here.breaker is not None or rest is not None:
            now = self._clock.microseconds()
            here.judge(passed, rules, verdict, now=now)
            if rest is not None:
                here.rest(now, microseconds(rest))

    async def inspect(self, key: str) -> Condition:
        """Tell how it stands with a key."""
        here = self._keys.get(key)
        if here is None:
            return Condition()
        now = self._clock.microseconds()
        return condition_of(
            here.breaker, now, rest_until=here.rest_until, slots_until=here.slots.values()
        )

    def _turn_away(self, until: int, now: int, reason: Reason) -> Refusal:
        """Refuse until an instant."""
        away = spread(until, now, chance=millionths(self._chance()))
        return Refusal(timedelta(microseconds=away), reason)

    def _line_up(self, here: "_Key", now: int, *, free_at: int) -> Refusal:
        """Refuse until the rate has an instant that nobody in the line before will take."""
        at, here.line = line_up(
            here.line,
            now,
            first_at=free_at,
            step=here.interval,
            longest=LINE_MAX,
            chance=millionths(self._chance()),
        )
        # Back a little before its instant, it waits for that one and misses none by being late.
        return Refusal(timedelta(microseconds=at - AHEAD // 2 - now), "rate_limited")

    def _send_out(self, here: "_Key", now: int) -> Refusal:
        """Refuse until a slot should have become free that nobody refused before will take."""
        step = here.step_of_crowd(now)
        at, here.crowd = line_up(
            here.crowd,
            now,
            first_at=now + max(step, HOLD_MIN),
            step=step,
            longest=CROWD_MAX,
            chance=millionths(self._chance()),
        )
        return Refusal(timedelta(microseconds=at - now), "crowded")

    def _sweep(self, now: int) -> None:
        """Drop the next few keys that have come to rest, going round and round."""
        self._until_sweep = SWEEP_EVERY
        if not self._to_sweep:
            self._to_sweep = list(self._keys)
        for key in self._to_sweep[-SWEEP_KEYS:]:
            here = self._keys.get(key)
            if here is not None and here.is_idle(now):
                del self._keys[key]
        del self._to_sweep[-SWEEP_KEYS:]


class _Key:
    """What is known of one key. Instants and lengths are microseconds; 0 is never."""

    __slots__ = (
        "breaker", "crowd", "frees_at", "held_until", "interval", "last_at", "line", "open_for",
        "rest_until", "rules", "slot_ttl", "slots",
    )  # fmt: skip

    def __init__(self) -> None:
        self.rules: Rules | None = None
        self.interval = 0
        self.slot_ttl = 0
        self.open_for = 0
        self.breaker: Breaker | None = None
        self.rest_until = 0
        self.last_at = 0  # The instant last given to a call.
        self.line = 0  # The instants last promised, by the rate and by the semaphore.
        self.crowd = 0
        self.slots: dict[str, int] = {}  # Until when each is held.
        self.frees_at = 0  # No slot expires before the one, all have expired at the other.
        self.held_until = 0

    def adopt(self, rules: Rules) -> None:
        """Reckon with these rules from now on."""
        self.rules = rules
        self.interval = interval_of(rules)
        self.slot_ttl = microseconds(rules.slot_ttl)
        self.open_for = microseconds(rules.open_for)

    def free_at(self, now: int) -> int:
        """Return the next free instant of the rate, which may have passed."""
        # An instant further ahead than any is given: the clock was set back. Begin anew.
        return self.last_at + self.interval if self.last_at <= now + AHEAD else 0

    def is_full(self, now: int) -> bool:
        """Tell whether all slots are held, after those of the dead were freed."""
        assert self.rules is not None
        if self.frees_at <= now:
            self.slots = {slot: until for slot, until in self.slots.items() if until > now}
            self.frees_at = min(self.slots.values(), default=now)
        return len(self.slots) >= self.rules.concurrency

    def step_of_crowd(self, now: int) -> int:
        """Return how often a slot becomes free, judged by those that are held.

        Half of them are older than the middle one, and calls are on average seen half-way.
        """
        assert self.rules is not None
        middle = sorted(self.slots.values())[len(self.slots) // 2]
        age = now - (middle - self.slot_ttl)
        return max(2 * age, HOLD_MIN) // self.rules.concurrency

    def take(self, slot: str, at: int, now: int, *, is_probe: bool) -> None:
        """Change all that changes when a call is let in."""
        until = at + self.slot_ttl
        self.slots[slot] = until
        self.frees_at = min(self.frees_at, until)
        self.held_until = max(self.held_until, until)
        if self.interval:
            if now - self.free_at(now) > LINE_FORGOTTEN + self.interval:
                self.line = 0
            self.last_at = at
        if is_probe:
            assert self.breaker is not None
            self.breaker.probes[slot] = until

    def judge(self, passed: Pass, rules: Rules, verdict: Verdict, *, now: int) -> None:
        """Tell the breaker how a call went; there is none before the first failure."""
        open_for = microseconds(rules.open_for)
        if self.breaker is not None and self.breaker.forget_at <= now:
            self.breaker = None
        if passed.is_probe:
            if self.breaker is not None:
                self.breaker.judge_probe(passed.slot, verdict, now, open_for=open_for)
            return
        if self.breaker is None:
            if verdict != "failing":
                return
            self.breaker = Breaker()
        self.breaker.judge(
            verdict,
            now,
            entered_at=passed.entered_at,
            failures_max=rules.failures_max,
            open_for=open_for,
        )

    def rest(self, now: int, length: int) -> None:
        """Close the key for a while."""
        self.rest_until = max(self.rest_until, now + min(length, REST_MAX))

    def is_idle(self, now: int) -> bool:
        """Tell whether a new key would behave the same."""
        return (
            (not self.slots or self.held_until <= now)
            and self.rest_until <= now
            and self.last_at + self.interval <= now
            and max(self.line, self.crowd) <= now
            and (self.breaker is None or self.breaker.forget_at <= now)
        )
