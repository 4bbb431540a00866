"""Fallback without Redis: each process applies the limits on its own until Redis is back.

The limits are per process then: n workers together may use n times the rate and n times the
permits, and each has its own breaker. That is the price of continuing.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from time import monotonic
from typing import Protocol

from penstock.base.log import Logger, describe
from penstock.base.meter import Meter
from penstock.integrations.redis.client import RedisUnavailable
from penstock.integrations.redis.metrics import FALLBACKS, LOCAL_ENTERS
from penstock.limits.gate import (
    Admission,
    KeyStatus,
    Limit,
    Permit,
    ProcessGate,
    Refusal,
    Rules,
    Verdict,
)

# One caller per this time tries Redis and may wait for the timeout; all others do not try.
RETRY_EVERY = timedelta(seconds=1)


class SharedGate(ProcessGate, Protocol):
    """A gate that remembers the permits that it could not return, and returns them later."""

    @property
    def returned_late_count(self) -> int: ...
    def return_later(self, permit: Permit) -> None: ...


class FallbackGate:
    """The shared gate while it answers, else the local one; never raises RedisUnavailable.

    A permit is returned to the gate that gave it. A permit of the shared gate that cannot be
    returned now is returned when Redis answers again, before any call enters; the verdict of its
    call is recorded by the local gate.
    """

    def __init__(
        self,
        shared: SharedGate,
        local: ProcessGate,
        *,
        log: Logger,
        meter: Meter,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._shared = shared
        self._local = local
        self._log = log
        self._meter = meter
        self._now = now
        self._unavailable_since: float | None = None
        self._retry_at = 0.0
        self._returned_before = 0  # Of the shared gate's `returned_late_count`.

    async def enter(self, key: str, rules: Rules) -> Permit | Refusal:
        """Return a permit, for now or shortly after, or a refusal that says when to come back."""
        if self._may_try_shared():
            try:
                answer = await self._shared.enter(key, rules)
            except RedisUnavailable as exc:
                self._fall_back(exc)
            else:
                self._recover()
                return answer
        self._meter.count(LOCAL_ENTERS)
        return await self._local.enter(key, rules)

    async def leave(
        self, permit: Permit, rules: Rules, *, verdict: Verdict, cooldown: timedelta | None = None
    ) -> None:
        """Return the permit to the gate that gave it."""
        if not permit.is_local:
            if self._unavailable_since is None:
                try:
                    return await self._shared.leave(
                        permit, rules, verdict=verdict, cooldown=cooldown
                    )
                except RedisUnavailable as exc:
                    self._fall_back(exc)
            else:
                self._shared.return_later(permit)
        return await self._local.leave(permit, rules, verdict=verdict, cooldown=cooldown)

    async def enter_all(self, limits: Sequence[Limit]) -> Admission | Refusal:
        """Take an instant of all rates and a permit of all semaphores, or nothing."""
        if self._may_try_shared():
            try:
                answer = await self._shared.enter_all(limits)
            except RedisUnavailable as exc:
                self._fall_back(exc)
            else:
                self._recover()
                return answer
        self._meter.count(LOCAL_ENTERS)
        return await self._local.enter_all(limits)

    async def leave_all(self, admission: Admission) -> None:
        """Return the permits to the gates that gave them.

        A batch may have entered before and after Redis became unavailable.
        """
        local = tuple(permit for permit in admission.permits if permit.is_local)
        shared = tuple(permit for permit in admission.permits if not permit.is_local)
        if local:
            await self._local.leave_all(Admission(wait=0, permits=local))
        if not shared:
            return
        if self._unavailable_since is None:
            try:
                await self._shared.leave_all(Admission(wait=0, permits=shared))
            except RedisUnavailable as exc:
                self._fall_back(exc)
        else:
            for permit in shared:
                self._shared.return_later(permit)

    async def inspect(self, key: str) -> KeyStatus:
        """Return the status of a key, from the gate that decides at present."""
        if self._unavailable_since is None:
            try:
                return await self._shared.inspect(key)
            except RedisUnavailable as exc:
                self._fall_back(exc)
        return await self._local.inspect(key)

    def _may_try_shared(self) -> bool:
        """Return whether to try the shared gate; after a failure, once per RETRY_EVERY."""
        if self._unavailable_since is None:
            return True
        now = self._now()
        if now < self._retry_at:
            return False
        self._retry_at = now + RETRY_EVERY.total_seconds()
        return True

    def _fall_back(self, exc: RedisUnavailable) -> None:
        """Record the failure; many callers see it at once, and only the first logs it."""
        if self._unavailable_since is not None:
            return
        self._unavailable_since = self._now()
        self._retry_at = self._unavailable_since + RETRY_EVERY.total_seconds()
        self._returned_before = self._shared.returned_late_count
        self._meter.count(FALLBACKS)
        self._log.warning("gate.fell_back", **describe(exc) | {"reason": exc.reason})

    def _recover(self) -> None:
        if self._unavailable_since is None:
            return
        unavailable_seconds = round(self._now() - self._unavailable_since, 3)
        self._unavailable_since = None
        self._log.info(
            "gate.recovered",
            unavailable_seconds=unavailable_seconds,
            returned_count=self._shared.returned_late_count - self._returned_before,
        )
