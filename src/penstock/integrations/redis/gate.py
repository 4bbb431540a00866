"""The gate that all workers share: its state is in Redis, its decisions are three Lua scripts.

Each decision is one atomic step on the server, by the server's clock. The keys are `sem:<key>`
(permits by expiry), `breaker:<key>`, `rate:<key>` and `cooldown:<key>`, all with a time to live.
Raises RedisUnavailable, which `fallback` handles; what it could not return, it returns later.
"""

import asyncio
import random
import secrets
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from hashlib import sha1
from importlib.resources import files
from itertools import count, islice
from typing import Any, Literal, TypeAlias

import msgspec
from redis.exceptions import NoScriptError

from penstock.base.aio import detach
from penstock.base.clock import Clock
from penstock.base.coalesce import Coalescer
from penstock.integrations.redis.client import (
    Client,
    Pipeline,
    RedisTimeout,
    RedisUnavailable,
    translated,
)
from penstock.limits import policy
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
from penstock.limits.policy import MILLION, interval_of, microseconds, millionths

# A delivery must not wait long for its gate. A healthy Redis answers within a millisecond.
TIMEOUT = timedelta(milliseconds=250)
BATCH_MAX = 500  # Redis needs 10 ms for this many, and other clients wait meanwhile.
RULES_KEPT = 10_000  # Rules whose script arguments are cached.
# Permits to return: several times what the lanes of a process run at once. Of more than these, the
# oldest are dropped, and expire.
UNRETURNED_MAX = 10_000
RETURN_EVERY = timedelta(seconds=1)  # An outage costs one short try in this time.

_encode = msgspec.msgpack.Encoder().encode
_CONSTANTS = _encode(
    {
        "breaker_kept": policy.BREAKER_KEPT,
        "call_min": policy.CALL_MIN,
        "cooldown_max": policy.COOLDOWN_MAX,
        "gaps_max": policy.GAPS_MAX,
        "probe_wait": policy.PROBE_WAIT,
        "queue_abandoned_after": policy.QUEUE_ABANDONED_AFTER,
        "rate_queue_max": policy.RATE_QUEUE_MAX,
        "semaphore_queue_max": policy.SEMAPHORE_QUEUE_MAX,
        "spread": policy.SPREAD,
        "wait_max": policy.WAIT_MAX,
    }
)

# Reason of a refusal or ""; microseconds to wait or to come back after; whether a probe, or which
# key refuses; now.
_Answer: TypeAlias = tuple[RefusalReason | Literal[""], int, bool | int, int]
_answers = msgspec.msgpack.Decoder(list[_Answer])


class RedisGate:
    """Applies the rules to all workers that use the same Redis and `prefix`.

    Needs a running event loop. The client belongs to the caller, which awaits `released` before it
    closes it. With `clock`, for tests, that clock decides instead of the server's.

    A permit whose return failed, or whose enter failed although Redis may have executed it, would
    occupy the semaphore until it expires. So it is remembered, and every batch returns such permits
    before anything else; a task tries once a second in case no other call is made.
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
        self._queue: Coalescer[_Request | None, _Answer | None] = Coalescer(
            self._run, batch_max=BATCH_MAX
        )
        self._name = secrets.token_hex(6)
        self._numbers = count(1)
        self._unreturned: dict[str, str] = {}  # Permit ids and their keys, the oldest first.
        self._returned_late_count = 0
        self._returning: asyncio.Task[None] | None = None

    @property
    def returned_late_count(self) -> int:
        """Return how many remembered permits have been returned so far."""
        return self._returned_late_count

    async def enter(self, key: str, rules: Rules) -> Permit | Refusal:
        """Return a permit, for now or shortly after, or a refusal that says when to come back."""
        permit_id = f"{self._name}-{next(self._numbers)}"
        request = _Request(
            script=_ENTER,
            keys=self._keys(key, "breaker", "cooldown", "rate", "sem"),
            values=(permit_id, *_script_numbers(rules), millionths(self._chance())),
        )
        try:
            answer = await self._queue.ask(request)
        except (asyncio.CancelledError, RedisTimeout):
            # Redis may have given the permit all the same, and nobody else knows its id.
            self._return_later(key, permit_id)
            raise
        except RedisUnavailable:
            # The connection may have broken after the script ran, or another call of the batch
            # failed. More often Redis is down, so this starts no task.
            self._remember(key, permit_id)
            raise
        assert answer is not None
        reason, wait, is_probe, now = answer
        if reason:
            return Refusal(timedelta(microseconds=wait), reason)
        return Permit(
            key=key, id=permit_id, wait=wait / MILLION, entered_at=now, is_probe=bool(is_probe)
        )

    async def leave(
        self, permit: Permit, rules: Rules, *, verdict: Verdict, cooldown: timedelta | None = None
    ) -> None:
        """Return the permit, now or as soon as Redis answers; then the verdict may be lost."""
        try:
            await self._queue.ask(self._leaving(permit, rules, verdict=verdict, cooldown=cooldown))
        except (asyncio.CancelledError, RedisUnavailable):
            self.return_later(permit)
            raise

    async def enter_all(self, limits: Sequence[Limit]) -> Admission | Refusal:
        """Take an instant of all rates and a permit of all semaphores, or nothing."""
        permits = {limit.key: f"{self._name}-{next(self._numbers)}" for limit in limits}
        request = _Request(
            script=_ENTER_ALL,
            keys=tuple(key for limit in limits for key in self._keys(limit.key, "rate", "sem")),
            values=(
                millionths(self._chance()),
                *((permits[limit.key], *_limit_numbers(limit)) for limit in limits),
            ),
        )
        semaphores = [limit.key for limit in limits if limit.concurrency is not None]
        try:
            answer = await self._queue.ask(request)
        except (asyncio.CancelledError, RedisTimeout):
            for key in semaphores:
                self._return_later(key, permits[key])
            raise
        except RedisUnavailable:
            for key in semaphores:
                self._remember(key, permits[key])
            raise
        assert answer is not None
        reason, wait, refusing, now = answer
        if reason:
            return Refusal(timedelta(microseconds=wait), reason, limits[refusing].key)
        entered = tuple(
            Permit(key=key, id=permits[key], wait=0, entered_at=now) for key in semaphores
        )
        return Admission(wait=wait / MILLION, permits=entered)

    async def leave_all(self, admission: Admission) -> None:
        """Return the permits, now or as soon as Redis answers."""
        leaves = (self.leave(permit, _NO_RULES, verdict="unknown") for permit in admission.permits)
        failures = await asyncio.gather(*leaves, return_exceptions=True)
        for failure in failures:
            if failure is not None:
                raise failure

    def return_later(self, permit: Permit) -> None:
        """Return a permit without a verdict as soon as Redis answers; the caller does not wait."""
        self._return_later(permit.key, permit.id)

    async def inspect(self, key: str) -> KeyStatus:
        """Return the present status of a key."""
        breaker_key, cooldown_key, sem_key = self._keys(key, "breaker", "cooldown", "sem")
        pipeline = self._client.pipeline(transaction=True)
        pipeline.execute_command("TIME")
        pipeline.execute_command("HGETALL", breaker_key)
        pipeline.execute_command("GET", cooldown_key)
        pipeline.execute_command("ZRANGE", sem_key, 0, -1, "WITHSCORES")
        with translated():
            async with asyncio.timeout(self._timeout):
                (seconds, more), breaker, cooldown_until, permits = await pipeline.execute()
        return key_status_of(
            _breaker(breaker),
            self._now() or seconds * MILLION + more,
            cooldown_until=int(cooldown_until or 0),
            permits_until=map(float, permits[1::2]),
        )

    async def released(self) -> None:
        """Return the remembered permits now; those that cannot be returned expire."""
        if self._returning is not None:
            self._returning.cancel()
            await asyncio.wait({self._returning})
        with suppress(RedisUnavailable):
            while self._unreturned:
                await self._queue.ask(None)

    def _return_later(self, key: str, permit_id: str) -> None:
        self._remember(key, permit_id)
        if self._returning is None or self._returning.done():
            self._returning = detach(self._return_all())

    def _remember(self, key: str, permit_id: str) -> None:
        if len(self._unreturned) >= UNRETURNED_MAX:
            del self._unreturned[next(iter(self._unreturned))]
        self._unreturned[permit_id] = key

    async def _return_all(self) -> None:
        """Return the remembered permits, with one try per RETURN_EVERY."""
        while self._unreturned:
            try:
                await self._queue.ask(None)
            except RedisUnavailable:
                await asyncio.sleep(RETURN_EVERY.total_seconds())

    def _leaving(
        self, permit: Permit, rules: Rules, *, verdict: Verdict, cooldown: timedelta | None
    ) -> "_Request":
        return _Request(
            script=_LEAVE,
            keys=self._keys(permit.key, "breaker", "cooldown", "sem"),
            values=(
                permit.id,
                verdict,
                permit.is_probe,
                permit.entered_at,
                rules.failures_max,
                microseconds(rules.open_for),
                microseconds(cooldown) if cooldown is not None else 0,
            ),
        )

    async def _run(self, batch: Sequence["_Request | None"]) -> Sequence[_Answer | None]:
        """Answer all calls of the batch, with one run of each script at most.

        None is the call that only returns remembered permits, as every batch does.
        """
        # Returns and leaves come first: their permits are free for the calls that enter.
        runs = [
            self._arguments(script, calls)
            for script in (_LEAVE, _ENTER, _ENTER_ALL)
            if (calls := [request for request in batch if request and request.script is script])
        ]
        with translated():
            async with asyncio.timeout(self._timeout):
                results = await self._execute(runs)
        entered = {
            script.sha: iter(_answers.decode(result))
            for (script, _), result in zip(runs, results, strict=True)
            if script is not _LEAVE
        }
        return [
            next(entered[request.script.sha]) if request and request.script is not _LEAVE else None
            for request in batch
        ]

    async def _execute(self, runs: Sequence["_Run"]) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        returning = dict(islice(self._unreturned.items(), BATCH_MAX))
        returns = self._add_returns(pipeline, returning) if returning else 0
        for script, arguments in runs:
            pipeline.execute_command("EVALSHA", script.sha, *arguments)
        results = await pipeline.execute(raise_on_error=False)
        for result in results[:returns]:
            if isinstance(result, Exception) and not _is_foreign_key(result):
                raise result
        for permit_id in returning:
            self._unreturned.pop(permit_id, None)
        self._returned_late_count += len(returning)
        results = results[returns:]
        for i, (script, arguments) in enumerate(runs):
            match results[i]:
                case NoScriptError():
                    # The server is new, or was restarted. This also loads the script.
                    results[i] = await self._client.execute_command("EVAL", script.text, *arguments)
                case Exception() as failure:
                    raise failure
                case _:
                    pass
        return results

    def _add_returns(self, pipeline: Pipeline, returning: Mapping[str, str]) -> int:
        """Add commands that return permits, and return how many commands these are.

        Not a script: they need no decision, so one key that fails does not stop the others, and
        they work while Redis is out of memory.
        """
        permits: dict[str, list[str]] = defaultdict(list)
        for permit_id, key in returning.items():
            permits[key].append(permit_id)
        for key, ids in permits.items():
            sem_key, breaker_key = self._keys(key, "sem", "breaker")
            pipeline.execute_command("ZREM", sem_key, *ids)
            # Some of them may have been probes.
            pipeline.execute_command("HDEL", breaker_key, *(f"probe:{each}" for each in ids))
        return 2 * len(permits)

    def _arguments(self, script: "_Script", calls: Sequence["_Request"]) -> "_Run":
        keys = [key for request in calls for key in request.keys]
        packed = _encode([request.values for request in calls])
        return script, (len(keys), *keys, self._now(), _CONSTANTS, packed)

    def _now(self) -> int:
        """Return the instant to decide by, 0 for the server's clock."""
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
_ENTER_ALL = _script("enter_all.lua")
_LEAVE = _script("leave.lua")
_NO_RULES = Rules()  # Of a call without a breaker: its verdict is always unknown.

_Run: TypeAlias = tuple[_Script, tuple[int | str | bytes, ...]]


class _Request(msgspec.Struct, frozen=True, gc=False):
    """One call of one script."""

    script: _Script
    keys: tuple[str, ...]
    values: tuple[str | int | bool | tuple[str | int, ...], ...]


@lru_cache(RULES_KEPT)
def _script_numbers(rules: Rules) -> tuple[int, ...]:
    """Return the rules as arguments of enter.lua."""
    return (
        interval_of(rules),
        rules.concurrency,
        microseconds(rules.permit_ttl),
        microseconds(rules.open_for),
        rules.probes_max,
    )


def _limit_numbers(limit: Limit) -> tuple[int, ...]:
    """Return a limit as arguments of enter_all.lua; 0 is no limit."""
    return (interval_of(limit), limit.concurrency or 0, microseconds(limit.permit_ttl))


def _is_foreign_key(failure: Exception) -> bool:
    """Return whether another program uses the key, so that it holds no permits."""
    return str(failure).startswith("WRONGTYPE")


def _breaker(stored: Mapping[bytes, bytes]) -> Breaker:
    breaker = Breaker()
    breaker.failures = int(stored.get(b"failures", 0))
    breaker.open_until = int(stored.get(b"open_until", 0))
    breaker.forget_at = int(stored.get(b"forget_at", 0))
    return breaker
