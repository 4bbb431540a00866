"""How a domain announces what has happened; `compose` decides who receives it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar

import asyncpg

from penstock.base.log import Logger
from penstock.postgres.pool import CONNECTION_LOST, Connection


class DomainEvent(Protocol):
    """A msgspec struct about one thing that has happened; its type is like `mail.sent`."""

    @property
    def type(self) -> str: ...


EventT = TypeVar("EventT", bound=DomainEvent)

# Hands events over in the transaction of the connection, so that they exist if the result does.
Announce: TypeAlias = Callable[[Connection, Sequence[EventT]], Awaitable[None]]


async def announce_nothing(_db: Connection, _events: Sequence[DomainEvent]) -> None:
    """Announce to nobody."""


async def announce_apart(
    db: Connection, events: Sequence[EventT], *, announce: Announce[EventT], log: Logger
) -> None:
    """Announce in a savepoint: events that are refused must not undo what they are about."""
    if not events:
        return
    try:
        async with db.transaction():
            await announce(db, events)
    except CONNECTION_LOST:
        raise
    except asyncpg.PostgresError as refused:
        log.error(
            "events.refused",
            name=events[0].type,
            event_count=len(events),
            reason=type(refused).__name__,
        )
