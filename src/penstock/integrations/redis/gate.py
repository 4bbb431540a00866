"""The gate that all workers share: its state is in Redis, its decisions are two Lua scripts there.

Each decision is one atomic step on the server, by the server's clock. The keys are `sem:<key>`
(slots by when they expire), `breaker:<key>`, `rate:<key>` and `rest:<key>`, all with a time to
live. Raises RedisAway; `fallback` knows what to do then.
"""

import asyncio
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from hashlib import sha1
from importlib.resources import files
from itertools import count
from typing import Any, Literal, TypeAlias

import msgspec
from redis.exceptions import NoScriptError

from penstock.base.aio import detach
from penstock.base.clock import Clock
from penstock.base.coalesce import Coalescer
from penstock.integrations.redis.client import Client, RedisAway, RedisSlow, translated
from penstock.limits import policy
from penstock.limits.breaker import Breaker
from penstock.limits.condition import condition_of
from penstock.limits.gate import Condition, Pass, Reason, Refusal, Rules, Verdict
from penstock.limits.policy import MILLION, interval_of, microseconds, millionths

# A delivery must not hang on its gate. Redis answers within a millisecond, or is not well.
TIMEOUT = timedelta(milliseconds=250)
BATCH_MAX = 500  # Redis is busy for 10 ms with so many, and lets others wait.
RULES_KEPT = 10_000  # The numbers of so many rules are kept ready.

_encode = msgspec.msgpack.Encoder().encode
_CONSTANTS = _encode(
    {
        "ahead": policy.AHEAD,
        "crowd_max": policy.CROWD_MAX,
        "hold_min": policy.HOLD_MIN,
        "kept": policy.KEPT,
        "line_forgotten": policy.LINE_FORGOTTEN,
        "line_max": policy.LINE_MAX,
        "probing": policy.PROBING,
        "rest_max": policy.REST_MAX,
        "spread": policy.SPREAD,
    }
)

# Why not, or ""; microseconds to wait or to stay away; is it a probe; now.
_Answer: TypeAlias = tuple[Reason | Literal[""], int, bool, int]
_answers = msgspec.msgpack.Decoder(list[_Answer])


class RedisGate:
    """Keeps the rules over all workers that use the same Redis and `prefix`.

    Make it where a loop runs. The client belongs to the caller, who awaits `released` before he
    closes it. A given `clock`, for tests, decides instead of the server's.
    """

    def __init__(
        self,
        client: Client,
        *,
        prefix: str = "",
        clock: Clock | None = None,
        chance: Callable[[], float] = random.random,
        timeout: timedelta = TIMEOUT,
    ) -> None:
        self._client = client
        self._prefix = prefix
        self._clock = clock
        self._chance = chance
        self._timeout = timeout.total_seconds()
        self._queue: Coalescer[_Asked, _Answer | None] = Coalescer(self._run, batch_max=BATCH_MAX)
        self._name = secrets.token_hex(6)
        self._numbers = count(1)
        self._releases: set[asyncio.Task[None]] = set()

    async def enter(self, key: str, rules: Rules) -> Pass | Refusal:
        """Let the caller in, now or in a moment, or tell it when to come back."""
        slot = f"{self._name}-{next(self._numbers)}"
        asked = _Asked(
            script=_ENTER,
            keys=self._keys(key, "breaker", "rest", "rate", "sem"),
            values=(slot, *_numbers(rules), millionths(self._chance())),
        )
        try:
            answer = await self._queue.ask(asked)
        except (asyncio.CancelledError, RedisSlow):
            # It may have been let in all the same, and nobody else knows its slot.
            self._let_go(key, slot)
            raise
        assert answer is not None
        reason, wait, is_probe, now = answer
        if reason:
            return Refusal(timedelta(microseconds=wait), reason)
        return Pass(key=key, slot=slot, wait=wait / MILLION, entered_at=now, is_probe=is_probe)

    async def leave(
        self, passed: Pass, rules: Rules, *, verdict: Verdict, rest: timedelta | None = None
    ) -> None:
        """Give the slot back, also if the caller is cancelled; then the verdict may be lost."""
        try:
            await self._queue.ask(self._leaving(passed, rules, verdict=verdict, rest=rest))
        except asyncio.CancelledError:
            self._let_go(passed.key, passed.slot)
            raise

    async def inspect(self, key: str) -> Condition:
        """Tell how it stands with a key."""
        breaker_key, rest_key, sem_key = self._keys(key, "breaker", "rest", "sem")
        pipeline = self._client.pipeline(transaction=True)
        pipeline.execute_command("TIME")
        pipeline.execute_command("HGETALL", breaker_key)
        pipeline.execute_command("GET", rest_key)
        pipeline.execute_command("ZRANGE", sem_key, 0, -1, "WITHSCORES")
        with translated():
            async with asyncio.timeout(self._timeout):
                (seconds, more), breaker, rest_until, slots = await pipeline.execute()
        return condition_of(
            _breaker(breaker),
            self._now() or seconds * MILLION + more,
            rest_until=int(rest_until or 0),
            slots_until=map(float, slots[1::2]),
        )

    async def released(self) -> None:
        """Wait until the slots of callers who were cancelled are given back, or cannot be."""
        while self._releases:
            await asyncio.wait(self._releases)

    def _let_go(self, key: str, slot: str) -> None:
        """Give a slot back, beside a caller who does not wait for it."""
        task = detach(self._release(key, slot))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def _release(self, key: str, slot: str) -> None:
        """Give back what a caller has left behind; if Redis is away, time does it."""
        # As a probe, which it may have been: that frees its place, and judges nothing.
        passed = Pass(key=key, slot=slot, wait=0, entered_at=0, is_probe=True)
        with suppress(RedisAway):
            await self._queue.ask(self._leaving(passed, Rules(), verdict="unknown", rest=None))

    def _leaving(
        self, passed: Pass, rules: Rules, *, verdict: Verdict, rest: timedelta | None
    ) -> "_Asked":
        return _Asked(
            script=_LEAVE,
            keys=self._keys(passed.key, "breaker", "rest", "sem"),
            values=(
                passed.slot,
                verdict,
                passed.is_probe,
                passed.entered_at,
                rules.failures_max,
                microseconds(rules.open_for),
                microseconds(rest) if rest is not None else 0,
            ),
        )

    async def _run(self, batch: Sequence["_Asked"]) -> Sequence[_Answer | None]:
        """Answer everybody who asked, with one run of each script at most."""
        # Leaves come first: what they free is there for those who enter.
        runs = [
            self._arguments(script, calls)
            for script in (_LEAVE, _ENTER)
            if (calls := [asked for asked in batch if asked.script is script])
        ]
        with translated():
            async with asyncio.timeout(self._timeout):
                results = await self._execute(runs)
        entered = iter(_answers.decode(results[-1]) if isinstance(results[-1], bytes) else ())
        return [next(entered) if asked.script is _ENTER else None for asked in batch]

    async def _execute(self, runs: Sequence["_Run"]) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        for script, arguments in runs:
            pipeline.execute_command("EVALSHA", script.sha, *arguments)
        results = await pipeline.execute(raise_on_error=False)
        for i, (script, arguments) in enumerate(runs):
            match results[i]:
                case NoScriptError():
                    # The server is new, or was restarted. This loads the script, too.
                    results[i] = await self._client.execute_command("EVAL", script.text, *arguments)
                case Exception() as failure:
                    raise failure
                case _:
                    pass
        return results

    def _arguments(self, script: "_Script", calls: Sequence["_Asked"]) -> "_Run":
        keys = [key for asked in calls for key in asked.keys]
        packed = _encode([asked.values for asked in calls])
        return script, (len(keys), *keys, self._now(), _CONSTANTS, packed)

    def _now(self) -> int:
        """Return the instant to decide by, 0 for the server's."""
        return self._clock.microseconds() if self._clock else 0

    def _keys(self, key: str, *parts: str) -> tuple[str, ...]:
        return tuple([f"{self._prefix}{part}:{key}" for part in parts])


@dataclass(frozen=True, slots=True)
class _Script:
    text: str
    sha: str


def _script(name: str) -> _Script:
    folder = files("penstock.integrations.redis")
    text = "\n".join((folder / part).read_text(encoding="utf-8") for part in ("begin.lua", name))
    return _Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


_ENTER = _script("enter.lua")
_LEAVE = _script("leave.lua")

_Run: TypeAlias = tuple[_Script, tuple[int | str | bytes, ...]]


class _Asked(msgspec.Struct, frozen=True, gc=False):
    """One call of one script."""

    script: _Script
    keys: tuple[str, ...]
    values: tuple[str | int | bool, ...]


@lru_cache(RULES_KEPT)
def _numbers(rules: Rules) -> tuple[int, ...]:
    """Return what enter.lua has to know of the rules."""
    return (
        interval_of(rules),
        rules.concurrency,
        microseconds(rules.slot_ttl),
        microseconds(rules.open_for),
        rules.probes_max,
    )


def _breaker(stored: Mapping[bytes, bytes]) -> Breaker:
    breaker = Breaker()
    breaker.failures = int(stored.get(b"failures", 0))
    breaker.open_until = int(stored.get(b"open_until", 0))
    breaker.forget_at = int(stored.get(b"forget_at", 0))
    return breaker
