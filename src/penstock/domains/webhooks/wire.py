"""What goes over HTTP, as types. Input refuses unknown fields; UNSET was not given, unlike null."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from penstock.contract.paging import Limit, take_page
from penstock.domains.webhooks import event, inspect, replay, subscription
from penstock.domains.webhooks.errors import EventConflict
from penstock.domains.webhooks.event import DEFAULT_TENANT, EVENT_ID, TENANT_LENGTH_MAX
from penstock.domains.webhooks.replay import ReplayState, Which
from penstock.domains.webhooks.secret import Profile, Scheme
from penstock.domains.webhooks.subscription import CONCURRENCY, RATE_LIMIT, SubscriptionState
from penstock.limits import gate

BATCH_MAX = 1_000
DELIVERIES_SHOWN = 100  # With their event, or on a page: more than most events have.

Instant = Annotated[datetime, Meta(tz=True)]
EventId = Annotated[str, Meta(pattern=f"^{EVENT_ID}$")]
EventType = Annotated[str, Meta(min_length=1, max_length=255, examples=["order.paid"])]
Tenant = Annotated[str, Meta(min_length=1, max_length=TENANT_LENGTH_MAX)]
SubscriptionId = Annotated[str, Meta(min_length=1, max_length=64)]
ReplayId = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Cursor = Annotated[str, Meta(description="The `next` of the page before.", pattern="^[0-9]{1,18}$")]
Seconds = Annotated[float, Meta(ge=0)]
Schedule = list[Seconds] | Literal["standard"]
Concurrency = Annotated[int, Meta(ge=1, le=10_000)]
Json = Annotated[Raw, Meta(description="Any JSON value.")]
Filter = Annotated[
    Raw, Meta(description="Conditions on the data as an object, or null: all events.")
]
NO_FILTER = Raw(b"null")
NOT_GIVEN = Raw(b"")  # A Raw takes no UNSET.

EventStatus = Literal["pending", "retrying", "delivered", "failed", "partly"]
DeliveryStatus = Literal["pending", "retrying", "delivered", "failed"]

# ------------------------------------------------------------------------------- parameters


class EventRef(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which event."""

    id: EventId
    tenant: Tenant = DEFAULT_TENANT


class DeliveryQuery(EventRef, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of an event's deliveries."""

    after: Cursor | None = None
    limit: Limit = DELIVERIES_SHOWN


class EventQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of events."""

    tenant: Tenant = DEFAULT_TENANT
    type: EventType | None = None
    from_: Instant | None = field(name="from", default=None)
    until: Instant | None = None
    after: Cursor | None = None
    limit: Limit = 100


class SubscriptionRef(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which subscription."""

    id: SubscriptionId


class SubscriptionQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of subscriptions, of one tenant or of all."""

    tenant: Tenant | None = None
    after: Cursor | None = None
    limit: Limit = 100


class EventReplayRef(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which replay."""

    id: ReplayId


class ReplayQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of replays."""

    after: Cursor | None = None
    limit: Limit = 100


# ----------------------------------------------------------------------------------- events


class NewEvent(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event that has happened."""

    type: EventType
    data: Json
    id: EventId | None = None
    source: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    tenant: Tenant = DEFAULT_TENANT


class AcceptedEvent(Struct, frozen=True, kw_only=True):
    """The event is kept, and so are its deliveries; `is_new` is false for a repeat.

    If it was published to Kafka, it is kept there, and the last two are null.
    """

    id: str
    is_new: bool
    accepted_at: Instant | None
    deliveries: int | None


class Result(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one event of a batch."""

    index: int
    outcome: Literal["accepted", "existing", "conflict", "invalid"]
    id: str | None = None
    deliveries: int | None = None
    detail: str | None = None


class Delivery(Struct, frozen=True, kw_only=True):
    """The event's way to one subscriber; `item_id` is the kernel's item that carries it."""

    subscription_id: str
    item_id: int
    status: DeliveryStatus
    attempts: int
    next_attempt_at: Instant | None
    last_error: str | None
    delivered_at: Instant | None


class Event(Struct, frozen=True, kw_only=True):
    """An event and how far it is."""

    id: str
    tenant: str
    type: str
    source: str | None
    status: EventStatus
    attempts: int
    max_attempts: int
    next_attempt_at: Instant | None
    last_error: str | None
    created_at: Instant
    updated_at: Instant
    delivered_at: Instant | None


class EventDetail(Event, frozen=True, kw_only=True):
    """An event with its data and the first page of its deliveries."""

    data: Json
    deliveries: list[Delivery]
    next: str | None


class DeliveryPage(Struct, frozen=True, kw_only=True):
    """A page of an event's deliveries, the oldest subscription first."""

    deliveries: list[Delivery]
    next: str | None


class EventPage(Struct, frozen=True, kw_only=True):
    """A page of events, the newest first."""

    events: list[Event]
    next: str | None


class Attempt(Struct, frozen=True, kw_only=True):
    """One try of one delivery."""

    subscription_id: str
    item_id: int
    attempt_number: int
    outcome: str
    status_code: int | None
    response_body: str | None
    error: str | None
    duration_ms: int
    created_at: Instant


class Attempts(Struct, frozen=True, kw_only=True):
    """Every try of every delivery of an event, the oldest first."""

    attempts: list[Attempt]


# ---------------------------------------------------------------------------- subscriptions


class NewSubscription(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A subscription to create: event types, URL and limits."""

    url: Annotated[str, Meta(min_length=1, max_length=2048)]
    event_types: Annotated[list[str], Meta(min_length=1, max_length=100, examples=[["order.*"]])]
    tenant: Tenant = DEFAULT_TENANT
    filter: Filter = field(default_factory=lambda: NO_FILTER)
    ordering_key: str | None = None
    description: str = ""
    profile: Profile = "standard"
    rate_limit: float | None = RATE_LIMIT
    concurrency: Concurrency = CONCURRENCY
    timeout_seconds: Seconds = 15
    retry_schedule_seconds: Schedule | None = None
    headers: dict[str, str] | None = None
    scheme: Scheme = "hmac"
    secret: str | None = None


class ChangedSubscription(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to change; the rest stays."""

    url: Annotated[str, Meta(min_length=1, max_length=2048)] | UnsetType = UNSET
    event_types: Annotated[list[str], Meta(min_length=1, max_length=100)] | UnsetType = UNSET
    filter: Filter = field(default_factory=lambda: NOT_GIVEN)
    ordering_key: str | UnsetType | None = UNSET
    description: str | UnsetType = UNSET
    state: Literal["active", "paused"] | UnsetType = UNSET
    rate_limit: float | UnsetType | None = UNSET
    concurrency: Concurrency | UnsetType = UNSET
    timeout_seconds: Seconds | UnsetType = UNSET
    retry_schedule_seconds: Schedule | UnsetType | None = UNSET
    headers: dict[str, str] | UnsetType | None = UNSET


class Subscription(Struct, frozen=True, kw_only=True):
    """A subscription; of its headers only the names, and of its secret nothing."""

    id: str
    tenant: str
    url: str
    event_types: list[str]
    filter: Filter
    ordering_key: str | None
    description: str
    active: bool
    state: SubscriptionState
    state_reason: str | None
    profile: Profile
    rate_limit: float | None
    concurrency: int
    timeout_seconds: float
    retry_schedule_seconds: list[float] | None
    header_names: list[str]
    created_at: Instant
    updated_at: Instant


class CreatedSubscription(Struct, frozen=True, kw_only=True):
    """A new subscription with its secret, which is shown this once."""

    subscription: Subscription
    secret: str


class SubscriptionPage(Struct, frozen=True, kw_only=True):
    """A page of subscriptions."""

    subscriptions: list[Subscription]
    next: str | None


class EndpointStatus(Struct, frozen=True, kw_only=True):
    """The limits of an endpoint now: those of this process, or of all that share a Redis."""

    breaker: Literal["closed", "open", "half_open"]
    failures: int
    open_until: Instant | None
    cooldown_until: Instant | None
    calls: int


class NewSecret(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rotate the secret. Without `secret`, one is generated; the previous one also signs during the
    overlap.
    """

    secret: str | None = None
    scheme: Scheme = "hmac"
    overlap_seconds: Seconds = 86_400


class Secret(Struct, frozen=True, kw_only=True):
    """A secret, shown this once."""

    secret: str


class PublicKeys(Struct, frozen=True, kw_only=True):
    """With what subscribers verify ed25519 signatures, the newest first."""

    keys: list[str]


# ---------------------------------------------------------------------------------- replays


class NewReplay(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events are to be sent again; a dry run only counts them."""

    subscription_id: SubscriptionId
    which: Which = "missing"
    event_types: Annotated[list[str], Meta(min_length=1, max_length=100)] | None = None
    from_: Instant | None = field(name="from", default=None)
    until: Instant | None = None
    rate: Annotated[float, Meta(ge=0.001, le=100_000)] | None = None
    dry_run: bool = False


class ChangedReplay(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pause, resume or cancel."""

    state: Literal["running", "paused", "cancelled"]


class EventReplay(Struct, frozen=True, kw_only=True):
    """A replay and how far it is; of a dry run there is only the count."""

    id: str | None
    subscription_id: str
    which: Which
    state: ReplayState | Literal["dry_run"]
    counted: int
    replayed: int
    rate: float | None
    created_at: Instant | None
    created_by: str | None
    finished_at: Instant | None


class ReplayPage(Struct, frozen=True, kw_only=True):
    """A page of replays, the newest first."""

    replays: list[EventReplay]
    next: str | None


# ------------------------------------------------------------------------- from the domain


def to_wire_accepted(accepted: event.AcceptedEvent) -> AcceptedEvent:
    """Say that an event is kept; raises EventConflict where another one is."""
    if accepted.outcome == "conflict":
        raise EventConflict(accepted.event_id)
    return AcceptedEvent(
        id=accepted.event_id,
        is_new=accepted.outcome == "accepted",
        accepted_at=accepted.accepted_at,
        deliveries=accepted.deliveries,
    )


def to_wire_event(found: inspect.EventView) -> Event:
    """Show an event of a list."""
    return Event(**_event_fields(found))


def to_wire_event_detail(found: inspect.EventView, page: DeliveryPage) -> EventDetail:
    """Show one event with a page of its deliveries."""
    assert found.data is not None, "one event is read with its data"
    return EventDetail(
        **_event_fields(found),
        data=Raw(found.data.encode()),
        deliveries=page.deliveries,
        next=page.next,
    )


def to_wire_delivery_page(found: Sequence[inspect.DeliveryView], limit: int) -> DeliveryPage:
    """Show up to `limit` deliveries; `found` has one more if there is another page."""
    page, following = take_page(found, limit, lambda each: each.number)
    return DeliveryPage(deliveries=[to_wire_delivery(each) for each in page], next=following)


def to_wire_delivery(delivery: inspect.DeliveryView) -> Delivery:
    """Show an event's way to one subscriber."""
    return Delivery(
        subscription_id=delivery.subscription_id,
        item_id=delivery.item_id,
        status=delivery.status,  # pyright: ignore[reportArgumentType]  The database knows no other.
        attempts=delivery.attempts,
        next_attempt_at=delivery.next_attempt_at,
        last_error=delivery.last_error,
        delivered_at=delivery.delivered_at,
    )


def to_wire_attempt(attempt: inspect.AttemptView) -> Attempt:
    """Show one try."""
    return Attempt(
        subscription_id=attempt.subscription_id,
        item_id=attempt.item_id,
        attempt_number=attempt.attempt,
        outcome=attempt.outcome,
        status_code=attempt.status_code,
        response_body=attempt.response_body,
        error=attempt.error,
        duration_ms=attempt.duration_ms,
        created_at=attempt.settled_at,
    )


def to_wire_subscription(found: subscription.Subscription) -> Subscription:
    """Show a subscription."""
    schedule = found.retry_schedule
    return Subscription(
        id=found.id,
        tenant=found.tenant,
        url=found.url,
        event_types=list(found.event_types),
        filter=NO_FILTER if found.filter is None else Raw(found.filter.encode()),
        ordering_key=found.ordering_key,
        description=found.description,
        active=found.state == "active",
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


def to_wire_endpoint_status(found: gate.KeyStatus) -> EndpointStatus:
    """Show the limits of an endpoint."""
    return EndpointStatus(
        breaker=found.breaker,
        failures=found.failures,
        open_until=found.open_until,
        cooldown_until=found.cooldown_until,
        calls=found.permits_in_use,
    )


def to_wire_replay(found: replay.EventReplay) -> EventReplay:
    """Return a replay of events for a response."""
    return EventReplay(
        id=str(found.id),
        subscription_id=found.subscription_id,
        which=found.which,
        state=found.state,
        counted=found.counted,
        replayed=found.replayed,
        rate=found.rate,
        created_at=found.created_at,
        created_by=found.created_by,
        finished_at=found.finished_at,
    )


def to_wire_dry_run(asked: replay.NewReplay, counted: int) -> EventReplay:
    """Show what a replay would do."""
    return EventReplay(
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


def _event_fields(found: inspect.EventView) -> dict[str, Any]:
    return {
        "id": found.id,
        "tenant": found.tenant,
        "type": found.type,
        "source": found.source,
        "status": found.status,
        "attempts": found.attempts,
        "max_attempts": found.max_attempts,
        "next_attempt_at": found.next_attempt_at,
        "last_error": found.last_error,
        "created_at": found.accepted_at,
        "updated_at": found.updated_at,
        "delivered_at": found.delivered_at,
    }
