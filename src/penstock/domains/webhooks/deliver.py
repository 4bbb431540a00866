"""One attempt of one delivery: breaker, rest, rate, semaphore; then the POST and a judgement."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from time import monotonic, time

from penstock.base.aio import finish
from penstock.base.errors import CallFailed
from penstock.base.log import Logger
from penstock.domains.webhooks.channel import Channel, Poster
from penstock.domains.webhooks.judge import DELIVERED, FAILING, Judgement, is_success, judge
from penstock.domains.webhooks.shelf import Delivery, Reference
from penstock.kernel.item import Dead, Done, Item, Outcome, Retry, Snooze
from penstock.limits.gate import Gate, Pass, Refusal, Verdict

RESPONSE_BYTES_MAX = (
    16 * 1024
)  # Of a response, kept with the attempt: for people, not for archives.
ALIKE_BYTES_MAX = 256  # Of an answer that others may have given in the same words.
PAUSED_FOR = timedelta(minutes=1)  # How soon a paused subscription is looked at again.
JITTER = 0.1  # Of a subscription's own schedule, as of the lane's.
# A rate of 50 a second leaves 20 ms between two calls; a quarter of that changes no second's count
# by more than one.
LATE_MAX = timedelta(milliseconds=5)
LATE_TRIES = 3
# How long to stand at a full gate before coming back by way of the database, which costs as much as
# a delivery. Who stands there takes a place in the lane, so that it must be a moment only.
PATIENCE = timedelta(milliseconds=50)
EARLY_MAX = 0.0005  # Seconds that the loop's timers cannot tell from none.
LEAVE_GRACE = timedelta(seconds=2)  # To give a slot back although the attempt was cancelled.


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliver:
    """The handler of the webhook lanes. `disable` ends a subscription whose endpoint is gone."""

    gate: Gate
    poster: Poster
    disable: Callable[[int, str], Awaitable[None]]
    log: Logger

    async def __call__(self, item: Item[Delivery | Reference]) -> Outcome:
        """Deliver once, and say how it ended."""
        delivery = item.payload
        if isinstance(delivery, Reference):
            return Dead("the event or its subscription is gone")
        channel = delivery.channel
        if channel.state != "active":
            return _put_off(channel)
        if channel.fault is not None:
            return self._excuse(channel, channel.fault)
        passed = await self._enter(channel)
        if isinstance(passed, Refusal):
            passed = await self._stand(passed, channel)
        if isinstance(passed, Refusal):
            return Snooze(passed.after, passed.reason)
        verdict: Verdict = "unknown"
        rest: timedelta | None = None
        try:
            outcome, judgement = await self._post(delivery, attempt=item.attempt)
            verdict, rest = judgement.verdict, judgement.rest
        finally:
            left = self.gate.leave(passed, channel.rules, verdict=verdict, rest=rest)
            await (left if verdict != "unknown" else finish(left, within=LEAVE_GRACE))
        if judgement.fate == "gone":
            await self.disable(channel.number, "the endpoint answered 410")
        return outcome

    async def _enter(self, channel: Channel) -> Pass | Refusal:
        """Pass the gate and wait for the instant that it has reserved.

        Who is held up and comes too late for it stands in line again: late calls of several
        workers would come in a bunch, and exceed the rate. Not for ever, though: a process that
        is always late must not stop.
        """
        tries = 0
        while True:
            asked_at = monotonic()
            passed = await self.gate.enter(channel.subscription_id, channel.rules)
            if isinstance(passed, Refusal) or passed.wait <= EARLY_MAX:
                return passed
            await self._wait(passed, channel)
            lateness = monotonic() - asked_at - passed.wait
            if tries == LATE_TRIES or lateness <= LATE_MAX.total_seconds():
                return passed
            tries += 1
            await self._let_go(passed, channel)

    async def _stand(self, refused: Refusal, channel: Channel) -> Pass | Refusal:
        """Stay at a full gate as long as a place should become free in a moment."""
        patient_until = monotonic() + PATIENCE.total_seconds()
        while refused.reason == "crowded":
            after = refused.after.total_seconds()
            if monotonic() + after > patient_until:
                break
            await asyncio.sleep(after)
            passed = await self._enter(channel)
            if isinstance(passed, Pass):
                return passed
            refused = passed
        return refused

    async def _wait(self, passed: Pass, channel: Channel) -> None:
        try:
            await asyncio.sleep(passed.wait)
        except BaseException:
            await finish(self._let_go(passed, channel), within=LEAVE_GRACE)
            raise

    async def _let_go(self, passed: Pass, channel: Channel) -> None:
        await self.gate.leave(passed, channel.rules, verdict="unknown")

    def _excuse(self, channel: Channel, fault: str) -> Outcome:
        """End what can never be sent; what only this process cannot send waits for its key."""
        if not channel.is_sealed:
            return Dead(fault)
        self.log.error("subscription.sealed", subscription_id=channel.subscription_id, reason=fault)
        return Snooze(PAUSED_FOR, fault)

    async def _post(self, delivery: Delivery, *, attempt: int) -> tuple[Outcome, Judgement]:
        channel, body = delivery.channel, delivery.body
        assert channel.signer is not None, "a channel without a fault can sign"
        lines = channel.signer.headers(delivery.event_id, int(time()), body)
        try:
            answer = await self.poster.post(channel.route, lines, body, timeout=channel.timeout)
        except CallFailed as failed:
            self._tell(delivery, attempt, reason=failed.kind)
            result = {"error": failed.kind}
            return _again(str(failed), FAILING, channel, attempt=attempt, result=result), FAILING
        if is_success(answer.status):
            return _done(answer.status, answer.body), DELIVERED
        result = _result(answer.status, answer.body)
        judgement = judge(answer.status, answer.header("retry-after"), now=datetime.now(UTC))
        reason = f"HTTP {answer.status}"
        self._tell(delivery, attempt, reason=reason)
        if judgement.fate == "again":
            return _again(reason, judgement, channel, attempt=attempt, result=result), judgement
        return Dead(reason, result), judgement

    def _tell(self, delivery: Delivery, attempt: int, *, reason: str) -> None:
        self.log.info(
            "delivery.failed",
            event_id=delivery.event_id,
            subscription_id=delivery.channel.subscription_id,
            attempt=attempt,
            reason=reason,
        )


def _done(status: int, body: bytes) -> Done:
    return (
        _done_alike(status, body) if len(body) <= ALIKE_BYTES_MAX else Done(_result(status, body))
    )


@lru_cache(maxsize=1_024)  # Most answers say the same few words; one object serves them all.
def _done_alike(status: int, body: bytes) -> Done:
    return Done(_result(status, body))


def _result(status: int, body: bytes) -> dict[str, object]:
    return {"status": status, "response": body[:RESPONSE_BYTES_MAX].decode(errors="replace")}


def _put_off(channel: Channel) -> Outcome:
    if channel.state == "paused":
        return Snooze(PAUSED_FOR, "the subscription is paused")
    return Dead(f"the subscription is {channel.state}")


def _again(
    reason: str, judgement: Judgement, channel: Channel, *, attempt: int, result: object
) -> Retry:
    """Repeat as the endpoint asks, else by the subscription's schedule, else by the lane's."""
    schedule = channel.retry_schedule
    # "At once" is no wish to be called five times in a moment.
    after = judgement.rest or None
    if schedule is None:
        return Retry(reason, after, result)
    if after is None and attempt <= len(schedule):
        after = schedule[attempt - 1] * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311
    return Retry(reason, after, result, attempts_max=len(schedule) + 1)
