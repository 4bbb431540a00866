"""Events of mails; `compose` decides who receives them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from msgspec import Struct

from penstock.postgres.pool import Connection

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
