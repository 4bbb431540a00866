"""Events of mails; `compose` decides who receives them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import asyncpg
from msgspec import Struct

from penstock.base.log import Logger
from penstock.postgres.pool import CONNECTION_LOST, Connection

EventType = Literal["mail.sent", "mail.failed", "mail.bounced", "mail.complained"]


class MailEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happened to one recipient of one mail."""

    type: EventType
    mail_id: int | None
    recipient_no: int | None
    recipient: str | None
    tags: Sequence[str] = ()
    reason: str | None = None
    code: int | None = None
    enhanced: str | None = None


# Hands events over in the transaction of the connection, so that they exist if the result does.
Announce = Callable[[Connection, Sequence[MailEvent]], Awaitable[None]]


async def announce_nothing(_db: Connection, _events: Sequence[MailEvent]) -> None:
    """Tell nobody."""


async def announce_apart(
    db: Connection, events: Sequence[MailEvent], *, announce: Announce, log: Logger
) -> None:
    """Announce in a savepoint: events that are refused must not undo the results."""
    try:
        async with db.transaction():
            await announce(db, events)
    except CONNECTION_LOST:
        raise
    except asyncpg.PostgresError as refused:
        log.error("mail_event.refused", events=len(events), reason=type(refused).__name__)
