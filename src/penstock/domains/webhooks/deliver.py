"""One attempt of one delivery: enter the gate, sign, POST, classify the response."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache

from penstock.base.aio import finish
from penstock.base.clock import Clock, instant
from penstock.base.errors import CallFailed
from penstock.base.log import Logger
from penstock.domains.webhooks.classify import (
    DELIVERED,
    FAILING,
    UNREACHED,
    Classification,
    classify,
    is_success,
)
from penstock.domains.webhooks.loader import Delivery, DeliveryRef
from penstock.domains.webhooks.prepared_subscription import Poster, PreparedSubscription
from penstock.kernel.item import Dead, Done, Item, Outcome, Retry, Snooze
from penstock.limits.admit import LEAVE_GRACE, admit
from penstock.limits.gate import Gate, Permit, Refusal, Verdict

RESPONSE_BYTES_MAX = (
    16 * 1024
)  # Of a response, kept with the attempt: for people, not for archives.
ALIKE_BYTES_MAX = 256  # Of an answer that others may have given in the same words.
PAUSED_FOR = timedelta(minutes=1)  # How soon a paused subscription is looked at again.
REFUSED_ADDRESS = "refused_address"  # The kind of a call that the egress rules refuse.
JITTER = 0.1  # Of a subscription's own schedule, as of the lane's.


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliver:
    """The handler of the webhook lanes. `disable` ends a subscription whose endpoint is gone."""

    gate: Gate
    poster: Poster
    disable: Callable[[int, str], Awaitable[None]]
    log: Logger
    clock: Clock  # The database's: receivers refuse a timestamp that is minutes off.

    async def __call__(self, item: Item[Delivery | DeliveryRef]) -> Outcome:
        """Deliver once, and say how it ended."""
        delivery = item.payload
        if isinstance(delivery, DeliveryRef):
            return Dead("the event or its subscription is gone")
        subscription = delivery.subscription
        if subscription.state != "active":
            return _inactive_outcome(subscription)
        if subscription.fault is not None:
            return self._fault_outcome(subscription, subscription.fault)
        permit = await self._admit(subscription)
        if isinstance(permit, Refusal):
            return Snooze(permit.after, permit.reason)
        verdict: Verdict = "unknown"
        cooldown: timedelta | None = None
        try:
            outcome, classification = await self._post(delivery, attempt=item.attempt)
            verdict, cooldown = classification.verdict, classification.cooldown
        finally:
            left = self.gate.leave(permit, subscription.rules, verdict=verdict, cooldown=cooldown)
            await (left if verdict != "unknown" else finish(left, within=LEAVE_GRACE))
        if classification.disposition == "gone":
            await self.disable(subscription.number, "the endpoint answered 410")
        return outcome

    def _admit(self, subscription: PreparedSubscription) -> Awaitable[Permit | Refusal]:
        """Enter the gate of the endpoint and wait for the reserved instant."""
        rules = subscription.rules
        return admit(
            lambda: self.gate.enter(subscription.subscription_id, rules),
            lambda permit: self.gate.leave(permit, rules, verdict="unknown"),
            rate=rules.rate,
        )

    def _fault_outcome(self, subscription: PreparedSubscription, fault: str) -> Outcome:
        """End what can never be sent; what only this process cannot send waits for its key."""
        if not subscription.is_sealed:
            return Dead(fault)
        self.log.error(
            "subscription.unseal_failed", subscription_id=subscription.subscription_id, reason=fault
        )
        return Snooze(PAUSED_FOR, fault)

    def _refused_outcome(self, subscription: PreparedSubscription, failed: CallFailed) -> Outcome:
        """Wait: the settings of this process refuse the address, those of another may allow it."""
        reason = f"{failed}; see PENSTOCK_EGRESS_ALLOW and PENSTOCK_EGRESS_PORTS of the worker"
        self.log.error(
            "egress.refused", subscription_id=subscription.subscription_id, reason=failed.reason
        )
        return Snooze(PAUSED_FOR, reason)

    async def _post(self, delivery: Delivery, *, attempt: int) -> tuple[Outcome, Classification]:
        subscription, body = delivery.subscription, delivery.body
        assert subscription.signer is not None, "a subscription without a fault can sign"
        at = self.clock.microseconds() // 1_000_000
        lines = subscription.signer.headers(delivery.event_id, at, body)
        try:
            answer = await self.poster.post(
                subscription.route, lines, body, timeout=subscription.timeout
            )
        except CallFailed as failed:
            if failed.kind == REFUSED_ADDRESS:
                return self._refused_outcome(subscription, failed), UNREACHED
            self._log_failure(delivery, attempt, reason=failed.kind)
            result = {"error": failed.kind}
            return _again(
                str(failed), FAILING, subscription, attempt=attempt, result=result
            ), FAILING
        if is_success(answer.status):
            return _done(answer.status, answer.body), DELIVERED
        result = _result(answer.status, answer.body)
        classification = classify(
            answer.status, answer.header("retry-after"), now=instant(self.clock)
        )
        reason = f"HTTP {answer.status}"
        self._log_failure(delivery, attempt, reason=reason)
        if classification.disposition == "retry":
            return _again(
                reason, classification, subscription, attempt=attempt, result=result
            ), classification
        return Dead(reason, result), classification

    def _log_failure(self, delivery: Delivery, attempt: int, *, reason: str) -> None:
        self.log.info(
            "delivery.failed",
            event_id=delivery.event_id,
            subscription_id=delivery.subscription.subscription_id,
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


def _inactive_outcome(subscription: PreparedSubscription) -> Outcome:
    if subscription.state == "paused":
        return Snooze(PAUSED_FOR, "the subscription is paused")
    return Dead(f"the subscription is {subscription.state}")


def _again(
    reason: str,
    classification: Classification,
    subscription: PreparedSubscription,
    *,
    attempt: int,
    result: object,
) -> Retry:
    """Repeat as the endpoint asks, else by the subscription's schedule, else by the lane's."""
    schedule = subscription.retry_schedule
    # Retry-After: 0 must not cause five calls at once.
    after = classification.cooldown or None
    if schedule is None:
        return Retry(reason, after, result)
    if after is None and attempt <= len(schedule):
        after = schedule[attempt - 1] * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311
    return Retry(reason, after, result, attempts_max=len(schedule) + 1)
