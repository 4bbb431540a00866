"""Accept events with all their deliveries, in one transaction. The database function does the work.

Producers may call the function themselves, in their own transaction: penstock.accept_event.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import asyncpg

from penstock.base.coalesce import Coalescer
from penstock.base.errors import InvalidInput
from penstock.contract.http import ACQUIRE_TIMEOUT
from penstock.domains.webhooks.errors import EventConflict
from penstock.domains.webhooks.event import AcceptedEvent, NewEvent
from penstock.domains.webhooks.kafka_message import decode, encode, key_of, with_id
from penstock.postgres.pool import Connection, Pool, database_away
from penstock.postgres.statement import statement

ACCEPT = statement(__package__, "accept.sql")

ACCEPT_TIMEOUT = timedelta(seconds=30)  # A batch of a thousand takes a tenth of a second.
BATCH_MAX = 500  # Single calls in one statement: more than come together, and still short.
BATCH_BYTES_MAX = 8 * 1024 * 1024  # Messages in one statement; it takes a second at most.

# Takes the key and the value of a message, and returns when it is safe.
Publish = Callable[[bytes, bytes], Awaitable[None]]

# What PostgreSQL says of one event, and would say of it again.
_REFUSED = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,
)


async def accept_events(
    db: Connection, events: Sequence[NewEvent], *, now: datetime | None = None
) -> list[AcceptedEvent]:
    """Accept events that `check` has let pass; what became of each is in its outcome."""
    rows = await db.fetch(
        ACCEPT,
        [event.tenant for event in events],
        [event.id for event in events],
        [event.type for event in events],
        [event.source for event in events],
        [event.data for event in events],
        [event.idempotency_key for event in events],
        now,
        timeout=ACCEPT_TIMEOUT.total_seconds(),
    )
    return [
        AcceptedEvent(
            outcome=outcome, event_id=event_id, accepted_at=accepted_at, deliveries=deliveries
        )
        for outcome, event_id, accepted_at, deliveries in rows
    ]


class EventBatcher:
    """Where single events come in: those that come together are accepted together."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._queue: Coalescer[NewEvent, AcceptedEvent] = Coalescer(
            self._accept, batch_max=BATCH_MAX
        )

    async def accept(self, event: NewEvent) -> AcceptedEvent:
        """Return once the event and its deliveries are committed."""
        return await self._queue.ask(event)

    async def _accept(self, events: Sequence[NewEvent]) -> Sequence[AcceptedEvent | Exception]:
        """Accept all in one transaction; if one is refused, each in its own."""
        async with self._pool.acquire(timeout=ACQUIRE_TIMEOUT.total_seconds()) as db:
            try:
                return await accept_events(db, events)
            except _REFUSED as refused:
                if len(events) == 1:
                    return [refused]
        return [each for event in events for each in await self._accept([event])]


class KafkaEventSink:
    """Where single events come in when a broker takes them first; they are accepted from there."""

    def __init__(self, publish: Publish) -> None:
        self._publish = publish

    async def accept(self, event: NewEvent) -> AcceptedEvent:
        """Return once the broker has the event. Whether it is known is seen later."""
        event = with_id(event)
        await self._publish(key_of(event), encode(event))
        assert event.id is not None, "it was just given one"
        return AcceptedEvent(
            outcome="accepted", event_id=event.id, accepted_at=None, deliveries=None
        )


async def accept_messages(
    pool: Pool, messages: Sequence[tuple[bytes | None, str]], *, data_bytes_max: int
) -> list[str | None]:
    """Accept events that come as messages, each with its place in the topic.

    Returns for each why it can never be accepted, or None: it is. Raises DatabaseAway; then some
    may be accepted already, and a repeat of all is harmless.
    """
    reasons: dict[int, str] = {}
    sound: dict[int, NewEvent] = {}
    for index, (value, place) in enumerate(messages):
        try:
            sound[index] = decode(value, place=place, data_bytes_max=data_bytes_max)
        except InvalidInput as refused:
            reasons[index] = str(refused)
    if sound:
        with database_away():
            async with pool.acquire(timeout=ACQUIRE_TIMEOUT.total_seconds()) as db:
                for part in _parts(sound):
                    reasons |= await _accept_part(db, part)
    return [reasons.get(index) for index in range(len(messages))]


async def _accept_part(db: Connection, part: Mapping[int, NewEvent]) -> dict[int, str]:
    """Accept events in one transaction; if one is refused, each in its own."""
    try:
        accepted = await accept_events(db, list(part.values()))
    except _REFUSED as refused:
        if len(part) == 1:
            return dict.fromkeys(part, f"the database refuses it: {type(refused).__name__}")
        reasons: dict[int, str] = {}
        for index, event in part.items():
            reasons |= await _accept_part(db, {index: event})
        return reasons
    return {
        index: str(EventConflict(each.event_id))
        for index, each in zip(part, accepted, strict=True)
        if each.outcome == "conflict"
    }


def _parts(events: Mapping[int, NewEvent]) -> Iterator[dict[int, NewEvent]]:
    """Cut events up so that no statement carries too much."""
    part: dict[int, NewEvent] = {}
    size_bytes = 0
    for index, event in events.items():
        if part and size_bytes + len(event.data) > BATCH_BYTES_MAX:
            yield part
            part, size_bytes = {}, 0
        part[index] = event
        size_bytes += len(event.data)
    yield part
