"""What we know of events, subscriptions and replays, as it goes over HTTP."""

from typing import Any

import msgspec

from penstock.base.errors import EventConflict
from penstock.domains.webhooks import wire
from penstock.domains.webhooks.event import Accepted
from penstock.domains.webhooks.inspect import AttemptView, DeliveryView, EventView
from penstock.domains.webhooks.replay import NewReplay, Replay
from penstock.domains.webhooks.subscription import Subscription
from penstock.limits.gate import Condition


def tell_accepted(accepted: Accepted) -> wire.AcceptedEvent:
    """Say that an event is kept; raises EventConflict where another one is."""
    if accepted.outcome == "conflict":
        raise EventConflict(accepted.event_id)
    return wire.AcceptedEvent(
        id=accepted.event_id,
        is_new=accepted.outcome == "accepted",
        accepted_at=accepted.accepted_at,
        deliveries=accepted.deliveries,
    )


def tell_event(event: EventView) -> wire.Event:
    """Show an event of a list."""
    return wire.Event(**_event_fields(event))


def tell_event_detail(event: EventView, deliveries: list[DeliveryView]) -> wire.EventDetail:
    """Show one event."""
    assert event.data is not None, "one event is read with its data"
    return wire.EventDetail(
        **_event_fields(event),
        data=msgspec.Raw(event.data.encode()),
        deliveries=[tell_delivery(each) for each in deliveries],
    )


def tell_delivery(delivery: DeliveryView) -> wire.Delivery:
    """Show an event's way to one subscriber."""
    return wire.Delivery(
        subscription_id=delivery.subscription_id,
        item_id=str(delivery.item_id),
        status=delivery.status,  # pyright: ignore[reportArgumentType]  The database knows no other.
        attempts=delivery.attempts,
        next_attempt_at=delivery.next_attempt_at,
        last_error=delivery.last_error,
        delivered_at=delivery.delivered_at,
    )


def tell_attempt(attempt: AttemptView) -> wire.Attempt:
    """Show one try."""
    return wire.Attempt(
        subscription_id=attempt.subscription_id,
        item_id=str(attempt.item_id),
        attempt_number=attempt.attempt,
        outcome=attempt.outcome,
        status_code=attempt.status_code,
        response_body=attempt.response_body,
        error=attempt.error,
        duration_ms=attempt.duration_ms,
        created_at=attempt.settled_at,
    )


def tell_subscription(found: Subscription) -> wire.Subscription:
    """Show a subscription."""
    schedule = found.retry_schedule
    return wire.Subscription(
        id=found.id,
        tenant=found.tenant,
        url=found.url,
        event_types=list(found.event_types),
        filter=wire.NO_FILTER if found.filter is None else msgspec.Raw(found.filter.encode()),
        ordering_key=found.ordering_key,
        description=found.description,
        state=found.state,
        state_reason=found.state_reason,
        profile=found.profile,
        rate_limit=found.rate_limit,
        concurrency=found.concurrency,
        timeout_seconds=found.timeout.total_seconds(),
        retry_schedule_seconds=(
            None if schedule is None else [delay.total_seconds() for delay in schedule]
        ),
        header_names=list(found.header_names),
        created_at=found.created_at,
        updated_at=found.updated_at,
    )


def tell_condition(condition: Condition) -> wire.Condition:
    """Show how it stands with an endpoint."""
    return wire.Condition(
        breaker=condition.breaker,
        failures=condition.failures,
        open_until=condition.open_until,
        resting_until=condition.resting_until,
        calls=condition.slots_in_use,
    )


def tell_replay(replay: Replay) -> wire.Replay:
    """Show a replay."""
    return wire.Replay(
        id=str(replay.id),
        subscription_id=replay.subscription_id,
        which=replay.which,
        state=replay.state,
        counted=replay.counted,
        replayed=replay.replayed,
        rate=replay.rate,
        created_at=replay.created_at,
        created_by=replay.created_by,
        finished_at=replay.finished_at,
    )


def tell_dry_run(asked: NewReplay, counted: int) -> wire.Replay:
    """Show what a replay would do."""
    return wire.Replay(
        id=None,
        subscription_id=asked.subscription_id,
        which=asked.which,
        state="dry_run",
        counted=counted,
        replayed=0,
        rate=asked.rate,
        created_at=None,
        created_by=None,
        finished_at=None,
    )


def _event_fields(event: EventView) -> dict[str, Any]:
    return {
        "id": event.id,
        "tenant": event.tenant,
        "type": event.type,
        "source": event.source,
        "status": event.status,
        "attempts": event.attempts,
        "next_attempt_at": event.next_attempt_at,
        "last_error": event.last_error,
        "created_at": event.accepted_at,
        "delivered_at": event.delivered_at,
    }
