"""The suppression list: addresses that get no mail, and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from penstock.base.errors import InvalidInput
from penstock.domains.mail.address import parse_address, suppression_key
from penstock.domains.mail.bounce import Bounce
from penstock.domains.mail.classify import classify
from penstock.domains.mail.errors import UnknownSuppression
from penstock.domains.mail.event import Announce, MailEvent
from penstock.domains.mail.inspect import list_recipients
from penstock.domains.mail.reply import Reply
from penstock.domains.mail.unsubscribe import Unsubscription
from penstock.kernel.audit import audit
from penstock.kernel.enqueue import check_instant
from penstock.postgres.pool import Connection, Queries
from penstock.postgres.statement import statement

SUPPRESS = statement(__package__, "suppress.sql")
LIST_SUPPRESSIONS = statement(__package__, "list_suppressions.sql")
REMOVE_SUPPRESSION = statement(__package__, "remove_suppression.sql")

Reason = Literal["hard_bounce", "complaint", "unsubscribe", "manual"]

SOME_REFUSAL = 550  # A report has the enhanced code only.


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression:
    """An address that gets no mail until `expires_at`, or for ever."""

    address: str
    reason: str
    expires_at: datetime | None
    mail_id: int | None
    created_at: datetime
    created_by: str


async def suppress(
    db: Connection,
    address: str,
    *,
    reason: Reason,
    who: str,
    expires_at: datetime | None = None,
    mail_id: int | None = None,
) -> None:
    """Add an address; one that is there already gets the new reason and expiry."""
    check_instant("expires_at", expires_at)
    key = suppression_key(parse_address(address, field="address").address)
    async with db.transaction():
        await db.execute(SUPPRESS, key, reason, expires_at, mail_id, who)
        await audit(db, who, "mail_suppression.added", subject=key, after={"reason": reason})


async def unsuppress(db: Connection, address: str, *, who: str) -> None:
    """Remove an address, or raise UnknownSuppression."""
    key = suppression_key(address)
    async with db.transaction():
        if not await db.fetchval(REMOVE_SUPPRESSION, key):
            raise UnknownSuppression(address)
        await audit(db, who, "mail_suppression.removed", subject=key)


async def list_suppressions(
    db: Queries, *, after: str | None = None, limit: int = 100
) -> list[Suppression]:
    """Return a page by address; `after` is the last address of the page before."""
    rows = await db.fetch(LIST_SUPPRESSIONS, after or "", limit)
    return [Suppression(**dict(row.items())) for row in rows]


async def take_bounces(
    db: Connection, bounces: Sequence[Bounce], *, announce: Announce, who: str
) -> int:
    """Suppress what bounces and complaints are about, and announce them; return how many.

    A soft bounce, and a hard one that is not about the address, only become events.
    """
    suppressed = 0
    async with db.transaction():
        for bounce in bounces:
            recipient = bounce.recipient or await _recipient_of(db, bounce)
            if recipient is not None and _suppresses(bounce):
                reason: Reason = "complaint" if bounce.kind == "complaint" else "hard_bounce"
                await suppress(db, recipient, reason=reason, who=who, mail_id=bounce.mail_id)
                suppressed += 1
        events = [_event(each) for each in bounces]
        if events:
            await announce(db, events)
    return suppressed


async def unsubscribe(db: Connection, asked: Unsubscription) -> None:
    """Suppress newsletters for the recipient of a mail; a repeat is harmless."""
    recipients = await list_recipients(db, asked.mail_id)
    if asked.recipient_no >= len(recipients):
        raise InvalidInput("token", "is of a mail that is no longer kept")
    address = recipients[asked.recipient_no].address
    await suppress(db, address, reason="unsubscribe", who="recipient", mail_id=asked.mail_id)


def _suppresses(bounce: Bounce) -> bool:
    if bounce.kind == "complaint":
        return True
    if bounce.kind == "soft":
        return False
    reply = Reply(phase="rcpt", code=SOME_REFUSAL, enhanced=bounce.enhanced, text=bounce.diagnostic)
    return classify(reply) == "permanent_suppress"


async def _recipient_of(db: Connection, bounce: Bounce) -> str | None:
    """Return the recipient of the mail, if it had only one."""
    if bounce.mail_id is None:
        return None
    recipients = await list_recipients(db, bounce.mail_id)
    return recipients[0].address if len(recipients) == 1 else None


def _event(bounce: Bounce) -> MailEvent:
    return MailEvent(
        type="mail.complained" if bounce.kind == "complaint" else "mail.bounced",
        mail_id=bounce.mail_id,
        recipient_no=None,
        recipient=bounce.recipient,
        reason=bounce.kind,
        enhanced=bounce.enhanced,
    )
