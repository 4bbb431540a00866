"""What happens without Redis: each process keeps the limits by itself until Redis is back.

The limits are per process then: n workers together may use n times the rate and n times the slots,
and a breaker opens in each of them by itself. That is the price of going on.
"""

from collections.abc import Callable
from datetime import timedelta
from time import monotonic

from penstock.base.log import Logger, describe
from penstock.base.meter import Meter
from penstock.integrations.redis.client import RedisAway
from penstock.limits.gate import Condition, Gate, Pass, Refusal, Rules, Verdict

# One caller in this time waits for an answer that may not come; all others do not even ask.
RETRY_EVERY = timedelta(seconds=1)


class FallbackGate:
    """The shared gate while it answers, else the local one; never raises RedisAway.

    A pass goes back to the gate that gave it. One of the shared gate that cannot be given back
    frees its slot by expiring; what its call has learned is told to the local gate.
    """

    def __init__(
        self,
        shared: Gate,
        local: Gate,
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
        self._away_since: float | None = None
        self._retry_at = 0.0

    async def enter(self, key: str, rules: Rules) -> Pass | Refusal:
        """Let the caller in, now or in a moment, or tell it when to come back."""
        if self._may_ask():
            try:
                answer = await self._shared.enter(key, rules)
            except RedisAway as away:
                self._fall_back(away)
            else:
                self._recover()
                return answer
        self._meter.count("gate_local_enters_total")
        return await self._local.enter(key, rules)

    async def leave(
        self, passed: Pass, rules: Rules, *, verdict: Verdict, rest: timedelta | None = None
    ) -> None:
        """Give the slot back where it came from."""
        if not passed.is_local and self._away_since is None:
            try:
                return await self._shared.leave(passed, rules, verdict=verdict, rest=rest)
            except RedisAway as away:
                self._fall_back(away)
        return await self._local.leave(passed, rules, verdict=verdict, rest=rest)

    async def inspect(self, key: str) -> Condition:
        """Tell how it stands with a key, as the gate that decides now sees it."""
        if self._away_since is None:
            try:
                return await self._shared.inspect(key)
            except RedisAway as away:
                self._fall_back(away)
        return await self._local.inspect(key)

    def _may_ask(self) -> bool:
        """Tell whether to ask the shared gate: always, or as the one who tries it again."""
        if self._away_since is None:
            return True
        now = self._now()
        if now < self._retry_at:
            return False
        self._retry_at = now + RETRY_EVERY.total_seconds()
        return True

    def _fall_back(self, away: RedisAway) -> None:
        """Take note; many callers learn of it at once, and one line tells it."""
        if self._away_since is not None:
            return
        self._away_since = self._now()
        self._retry_at = self._away_since + RETRY_EVERY.total_seconds()
        self._meter.count("gate_fallbacks_total")
        self._log.warning("gate.fell_back", **describe(away) | {"reason": away.reason})

    def _recover(self) -> None:
        if self._away_since is None:
            return
        away_seconds = round(self._now() - self._away_since, 3)
        self._away_since = None
        self._log.info("gate.recovered", away_seconds=away_seconds)
