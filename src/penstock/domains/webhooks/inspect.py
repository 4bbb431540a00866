"""What became of events: their status, their deliveries, every attempt. Reads only."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from penstock.domains.webhooks.errors import UnknownEvent
from penstock.kernel.enqueue import check_instant
from penstock.postgres.pool import Queries, Row
from penstock.postgres.statement import statement

FIND_EVENT = statement(__package__, "find_event.sql")
READ_EVENT = statement(__package__, "read_event.sql")
LIST_EVENT_IDS = statement(__package__, "list_event_ids.sql")
LIST_EVENTS = statement(__package__, "list_events.sql")
LIST_DELIVERIES = statement(__package__, "list_deliveries.sql")
LIST_ATTEMPTS = statement(__package__, "list_attempts.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView:
    """An event and how far it is. `data` is JSON text, None in lists.

    `attempts` are those of all deliveries, `max_attempts` is the lane's for each of them.
    """

    number: int
    id: str
    tenant: str
    type: str
    source: str | None
    data: str | None
    accepted_at: datetime
    status: str
    attempts: int
    max_attempts: int
    next_attempt_at: datetime | None
    last_error: str | None
    updated_at: datetime
    delivered_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryView:
    """An event's way to one subscriber; `number` is the subscription's."""

    number: int
    subscription_id: str
    item_id: int
    status: str
    attempts: int
    next_attempt_at: datetime | None
    last_error: str | None
    delivered_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    """One try of one delivery. `outcome` is the kernel's word: done, retry, dead or lost."""

    subscription_id: str
    item_id: int
    attempt: int
    outcome: str
    status_code: int | None
    response_body: str | None
    error: str | None
    duration_ms: int
    settled_at: datetime


async def read_event(db: Queries, tenant: str, event_id: str) -> EventView:
    """Return one event with its data, or raise UnknownEvent."""
    row = await db.fetchrow(READ_EVENT, tenant, event_id)
    if row is None:
        raise UnknownEvent(event_id)
    return _to_event(row)


async def find_event(db: Queries, tenant: str, event_id: str) -> int:
    """Return the number of an event, or raise UnknownEvent."""
    event_no: int | None = await db.fetchval(FIND_EVENT, tenant, event_id)
    if event_no is None:
        raise UnknownEvent(event_id)
    return event_no


async def list_event_ids(db: Queries, tenant: str, prefix: str, *, limit: int = 100) -> list[str]:
    """Return the ids of a tenant's events that begin with a text, the oldest first."""
    return [row["event_id"] for row in await db.fetch(LIST_EVENT_IDS, tenant, prefix, limit)]


async def list_events(
    db: Queries,
    tenant: str,
    *,
    types: Sequence[str] | None = None,
    from_at: datetime | None = None,
    until_at: datetime | None = None,
    before: int | None = None,
    limit: int = 100,
) -> list[EventView]:
    """Return a page of events without data, the newest first; `before` continues it.

    `types` are exact.
    """
    check_instant("from", from_at)
    check_instant("until", until_at)
    rows = await db.fetch(
        LIST_EVENTS,
        tenant,
        None if types is None else list(types),
        from_at,
        until_at,
        before,
        limit,
    )
    return [_to_event(row) for row in rows]


async def list_deliveries(
    db: Queries, event_no: int, *, after: int = 0, limit: int = 100
) -> list[DeliveryView]:
    """Return a page of an event's deliveries, one for each subscription, the oldest first.

    `after` is the number of the last subscription before the page.
    """
    rows = await db.fetch(LIST_DELIVERIES, event_no, after, limit)
    return [DeliveryView(**dict(row.items())) for row in rows]


async def list_attempts(db: Queries, event: EventView) -> list[AttemptView]:
    """Return all attempts of all deliveries of the event, the oldest first."""
    rows = await db.fetch(LIST_ATTEMPTS, event.number)
    return [AttemptView(**dict(row.items())) for row in rows]


def _to_event(row: Row) -> EventView:
    return EventView(**dict(row.items()))
