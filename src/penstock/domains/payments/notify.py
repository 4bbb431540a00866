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
from penstock.postgres.errors import DatabaseAway
from penstock.postgres.pool import CONNECTION_LOST, Connection
from penstock.postgres.statement import statement

HAS_TABLE = statement(__package__, "has_table.sql")

NOBODY = Notify()

# Errors that say nothing about a payment or its notification. What moves the payment is repeated
# after them: the attempt of a worker, the activity of a workflow, or a result, which is kept until
# it is applied.
TRY_AGAIN = (
    *CONNECTION_LOST,
    DatabaseAway,
    asyncpg.TransactionRollbackError,
    asyncpg.LockNotAvailableError,
    asyncpg.OperatorInterventionError,  # Such as a query that was cancelled.
)


class Notification(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one payment. Accounts are left out: events go to many receivers.

    `moved_at` is when a result moved it, in the transaction that accepts the notification. A
    payment may come to the same status again, which is another notification; the first ones of an
    execution, which happens once, have none.
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
        """The key of the follow-ups: the same for the same notification, and for no other."""
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


NotificationT = TypeVar("NotificationT", Notification, MailNotification)

# Accept follow-ups in the transaction of the connection.
SendNotifications: TypeAlias = Callable[[Connection, Sequence[NotificationT]], Awaitable[None]]
SendEvents: TypeAlias = SendNotifications[Notification]
SendMails: TypeAlias = SendNotifications[MailNotification]
# The last step of an execution, and what follows a result: sends the requested notifications.
NotifyStep: TypeAlias = Callable[
    [Connection, Sequence[tuple[Notify, Notification]]], Awaitable[None]
]


async def send_nothing(_db: Connection, _notifications: Sequence[object]) -> None:
    """Send nothing."""


def where_table_exists(
    table: str, send: SendNotifications[NotificationT]
) -> SendNotifications[NotificationT]:
    """Return what sends if the database has the table, and otherwise nothing.

    For a process that does not run the domain of the table: what is sent about a payment must not
    depend on which worker moves it.
    """
    is_there = False

    async def send_or_not(db: Connection, notifications: Sequence[NotificationT]) -> None:
        nonlocal is_there
        is_there = is_there or await has_table(db, table)
        if is_there:
            await send(db, notifications)

    return send_or_not


async def has_table(db: Connection, table: str) -> bool:
    """Return whether the database has a table, such as `penstock.mail`."""
    return await db.fetchval(HAS_TABLE, table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notifier:
    """Sends an event and a mail where the payment asks for them."""

    send_events: SendEvents
    send_mails: SendMails
    log: Logger

    async def __call__(
        self, db: Connection, notifications: Sequence[tuple[Notify, Notification]]
    ) -> None:
        """Accept the follow-ups of payments, in the transaction that moves them."""
        events = [about for whom, about in notifications if whom.event]
        if events:
            await self._send(db, self.send_events, events, kind="event")
        mails = [
            MailNotification(to=whom.mail, about=about)
            for whom, about in notifications
            if whom.mail
        ]
        if mails:
            await self._send(db, self.send_mails, mails, kind="mail")

    async def _send(
        self,
        db: Connection,
        send: SendNotifications[NotificationT],
        notifications: Sequence[NotificationT],
        *,
        kind: str,
    ) -> None:
        """Send in a savepoint: a notification that is refused must not stop the payment.

        If one of many is refused, each is sent for itself, so that it costs no other.
        """
        try:
            async with db.transaction():
                await send(db, notifications)
        except TRY_AGAIN:
            raise
        except (asyncpg.PostgresError, PenstockError) as refused:
            if len(notifications) > 1:
                for each in notifications:
                    await self._send(db, send, [each], kind=kind)
            else:
                self.log.error(
                    "notification.refused",
                    name=kind,
                    payment_id=notifications[0].payment_id,
                    reason=type(refused).__name__,
                )
