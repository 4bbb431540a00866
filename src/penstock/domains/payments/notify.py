"""Follow-ups: notifications about a payment, by event and by mail.

They are accepted in the transaction that moves the payment, each under a key: so there is one of
each if the payment has moved, and none if it has not. `compose` decides what carries them.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import TypeAlias, TypeVar

import asyncpg
import msgspec
from msgspec import Struct

from penstock.base.errors import PenstockError
from penstock.base.log import Logger
from penstock.domains.payments.payment import Notify
from penstock.postgres.pool import CONNECTION_LOST, Connection

NOBODY = Notify()


class Notification(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one payment. Accounts are left out: events go to many receivers.

    `moved_at` is when a result moved it, in the transaction that accepts the news. A payment may
    come to the same status again, which is other news; the first ones of an execution, which
    happens once, have none.
    """

    payment_id: str
    status: str
    amount: str
    currency: str
    reason: str | None = None
    rail_reference: str | None = None
    moved_at: datetime | None = None

    @property
    def event_type(self) -> str:
        """The type of the event, such as `payment.settled`."""
        return f"payment.{self.status.lower()}"

    @property
    def key(self) -> str:
        """The key of the follow-ups: the same for the same news, and for no other."""
        content = sha256(msgspec.json.encode(self)).hexdigest()[:8]
        return f"{key_prefix(self.payment_id)}-{self.status.lower()}-{content}"


def key_prefix(payment_id: str) -> str:
    """Return what the keys of all follow-ups of a payment begin with."""
    # A payment's id may have characters that the id of an event may not.
    return f"payment-{sha256(payment_id.encode()).hexdigest()[:32]}"


class MailNotification(Struct, frozen=True, kw_only=True):
    """A mail about a payment."""

    to: str
    about: Notification

    @property
    def payment_id(self) -> str:
        return self.about.payment_id

    @property
    def subject(self) -> str:
        return f"Payment {self.about.payment_id}: {self.about.status.lower()}"

    @property
    def text(self) -> str:
        about = self.about
        lines = [
            f"Payment {about.payment_id} of {about.amount} {about.currency}: {about.status}.",
            *([] if about.rail_reference is None else [f"Reference: {about.rail_reference}"]),
            *([] if about.reason is None else [f"Reason: {about.reason}"]),
        ]
        return "\n".join(lines) + "\n"


NewsT = TypeVar("NewsT", Notification, MailNotification)

# Accept follow-ups in the transaction of the connection.
SendNews: TypeAlias = Callable[[Connection, Sequence[NewsT]], Awaitable[None]]
SendEvents: TypeAlias = SendNews[Notification]
SendMails: TypeAlias = SendNews[MailNotification]
# The last step of an execution, and what follows a result: sends the requested notifications.
NotifyStep: TypeAlias = Callable[
    [Connection, Sequence[tuple[Notify, Notification]]], Awaitable[None]
]


async def send_nothing(_db: Connection, _news: Sequence[object]) -> None:
    """Send nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notifier:
    """Sends an event and a mail where the payment asks for them."""

    send_events: SendEvents
    send_mails: SendMails
    log: Logger

    async def __call__(self, db: Connection, news: Sequence[tuple[Notify, Notification]]) -> None:
        """Accept the follow-ups of payments, in the transaction that moves them."""
        events = [about for whom, about in news if whom.event]
        if events:
            await self._send(db, self.send_events, events, kind="event")
        mails = [MailNotification(to=whom.mail, about=about) for whom, about in news if whom.mail]
        if mails:
            await self._send(db, self.send_mails, mails, kind="mail")

    async def _send(
        self, db: Connection, send: SendNews[NewsT], news: Sequence[NewsT], *, kind: str
    ) -> None:
        """Send in a savepoint: a failed notification must not stop the payment.

        If one of many is refused, each is sent for itself, so that it costs no other.
        """
        try:
            async with db.transaction():
                await send(db, news)
        except CONNECTION_LOST:
            raise
        except (asyncpg.PostgresError, PenstockError) as refused:
            if len(news) > 1:
                for each in news:
                    await self._send(db, send, [each], kind=kind)
            else:
                self.log.error(
                    "payment_news.refused",
                    name=kind,
                    payment_id=news[0].payment_id,
                    reason=type(refused).__name__,
                )
