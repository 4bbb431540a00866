"""The suppression list: addresses that get no mail, and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import msgspec
from msgspec import Struct

from penstock.base.errors import InvalidInput
from penstock.domains.mail.address import parse_address, suppression_key
from penstock.domains.mail.bounce import Bounce
from penstock.domains.mail.classify import classify
from penstock.domains.mail.errors import UnknownSuppression
from penstock.domains.mail.event import Announce, MailEvent
from penstock.domains.mail.inspect import list_recipients
from penstock.domains.mail.reply import RelayReply
from penstock.domains.mail.unsubscribe import Unsubscription
from penstock.kernel.audit import audit
from penstock.kernel.enqueue import check_instant
from penstock.postgres.pool import Connection, Queries
from penstock.postgres.statement import statement

SUPPRESS = statement(__package__, "suppress.sql")
LIST_SUPPRESSIONS = statement(__package__, "list_suppressions.sql")
REMOVE_SUPPRESSION = statement(__package__, "remove_suppression.sql")

SuppressionReason = Literal["hard_bounce", "complaint", "unsubscribe", "manual"]

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


class TakenBounces(Struct, frozen=True, kw_only=True):
    """How many bounces and complaints a report had, how many addresses are suppressed now, and how
    many are about no mail that was sent. It goes over HTTP as it is.
    """

    bounces: int
    suppressed: int
    unmatched: int


async def suppress(
    db: Connection,
    address: str,
    *,
    reason: SuppressionReason,
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
    db: Connection, bounces: Sequence[Bounce], *, announce: Announce, who: str, may_name: bool
) -> TakenBounces:
    """Suppress what bounces and complaints are about, and announce them.

    A soft bounce, and a hard one that is not about the address, only become events. One that is
    about no recipient of a mail of this database changes nothing: anybody can write a report. With
    `may_name` the caller vouches for the address itself.
    """
    matched: list[Bounce] = []
    suppressed = 0
    async with db.transaction():
        for bounce in bounces:
            found = await _match(db, bounce, may_name=may_name)
            if found is None:
                continue
            matched.append(found)
            if found.recipient is not None and _suppresses(found):
                reason: SuppressionReason = (
                    "complaint" if found.kind == "complaint" else "hard_bounce"
                )
                await suppress(db, found.recipient, reason=reason, who=who, mail_id=found.mail_id)
                suppressed += 1
        if matched:
            await announce(db, [_event(each) for each in matched])
    return TakenBounces(
        bounces=len(bounces), suppressed=suppressed, unmatched=len(bounces) - len(matched)
    )


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
    reply = RelayReply(
        phase="rcpt", code=SOME_REFUSAL, enhanced=bounce.enhanced, text=bounce.diagnostic
    )
    return classify(reply) == "permanent_suppress"


async def _match(db: Connection, bounce: Bounce, *, may_name: bool) -> Bounce | None:
    """Return the bounce with the address that the mail was sent to, or None without such a mail.

    A complaint may come without an address; then it is that of the only recipient, or none.
    """
    recipients = [] if bounce.mail_id is None else await list_recipients(db, bounce.mail_id)
    addresses = [each.address for each in recipients]
    if bounce.recipient is None:
        only = addresses[0] if len(addresses) == 1 else None
        return msgspec.structs.replace(bounce, recipient=only) if addresses else None
    key = suppression_key(bounce.recipient)
    sent_to = next((each for each in addresses if suppression_key(each) == key), None)
    if sent_to is not None:
        return msgspec.structs.replace(bounce, recipient=sent_to)
    return msgspec.structs.replace(bounce, mail_id=None) if may_name else None


def _event(bounce: Bounce) -> MailEvent:
    return MailEvent(
        type="mail.complained" if bounce.kind == "complaint" else "mail.bounced",
        mail_id=bounce.mail_id,
        recipient_no=None,
        recipient=bounce.recipient,
        reason=bounce.kind,
        enhanced=bounce.enhanced,
    )
