"""What became of mails: their state, their recipients, their attempts. Reads only.

Structs go over HTTP as they are.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

from penstock.base.paging import cut_page
from penstock.domains.mail.errors import UnknownMail
from penstock.kernel.enqueue import check_instant
from penstock.kernel.inspect import ID_MAX
from penstock.postgres.pool import Queries, Row
from penstock.postgres.statement import statement

FIND_MAILS = statement(__package__, "find_mails.sql")
FIND_MAILS_TO = statement(__package__, "find_mails_to.sql")
FIND_MAILS_TAGGED = statement(__package__, "find_mails_tagged.sql")
READ_MAILS = statement(__package__, "read_mails.sql")
READ_MAIL = statement(__package__, "read_mail.sql")
LIST_RESULTS = statement(__package__, "list_results.sql")
LIST_PAST_RESULTS = statement(__package__, "list_past_results.sql")

LOOKED_AT_MAX = 1_000  # Mails that one page by status looks at, as their state has no index.

MailStatus = Literal["queued", "dispatching", "sent", "failed", "cancelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MailFilter:
    """Which mails: by recipient, tag, status, and the instant when they were accepted."""

    recipient: str | None = None
    tag: str | None = None
    status: MailStatus | None = None
    from_at: datetime | None = None
    until_at: datetime | None = None


ALL = MailFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class MailView:
    """A mail as the view mail_outbox shows it."""

    id: int
    status: str
    retry_count: int
    next_attempt_at: datetime
    last_error: str | None
    last_attempt_at: datetime | None
    lane: str
    sender: str
    recipients: list[str]
    subject: str
    tags: list[str]
    relay: str | None
    created_at: datetime
    ended_at: datetime | None
    recipients_sent: int
    recipients_failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MailPage:
    """Mails, the newest first; `next` is the `before` of the next page, None on the last."""

    mails: list[MailView]
    next: int | None


class RecipientView(Struct, frozen=True, kw_only=True):
    """One recipient; `result` is null while the mail is on its way to them."""

    recipient_no: int
    kind: str
    address: str
    result: str | None
    reply_class: str | None
    phase: str | None
    code: int | None
    enhanced: str | None
    reply: str | None
    relay: str | None
    at: datetime | None


class PastResult(Struct, frozen=True, kw_only=True):
    """A result that one recipient had until a replay."""

    recipient_no: int
    address: str
    result: str
    reply_class: str
    phase: str | None
    code: int | None
    enhanced: str | None
    reply: str | None
    relay: str | None
    at: datetime
    replayed_at: datetime


async def read_mail(db: Queries, mail_id: int) -> MailView:
    """Return one mail, or raise UnknownMail."""
    row = await db.fetchrow(READ_MAIL, mail_id)
    if row is None:
        raise UnknownMail(mail_id)
    return _to_mail(row)


async def list_mails(
    db: Queries, *, only: MailFilter = ALL, before: int | None = None, limit: int = 100
) -> MailPage:
    """Return a page of mails; `before` continues it.

    With a status, LOOKED_AT_MAX mails are looked at, so that a page may have fewer than `limit`
    mails, or none, and still a `next`.
    """
    check_instant("from", only.from_at)
    check_instant("until", only.until_at)
    looked_max = limit + 1 if only.status is None else max(limit + 1, LOOKED_AT_MAX)
    ids = await _find(db, only, before=before, limit=looked_max)
    rows = await db.fetch(READ_MAILS, ids)
    found = [_to_mail(row) for row in rows if only.status in (None, row["status"])]
    looked_until = None if len(ids) < looked_max else ids[-1]
    page, following = cut_page(found, limit, lambda mail: mail.id, looked_until=looked_until)
    return MailPage(mails=page, next=following)


async def list_recipients(db: Queries, mail_id: int) -> list[RecipientView]:
    """Return the recipients of a mail in their order, with their results."""
    return [RecipientView(**_result(row)) for row in await db.fetch(LIST_RESULTS, mail_id)]


async def list_past_results(db: Queries, mail_id: int) -> list[PastResult]:
    """Return what a mail's recipients had as results until its replays, the oldest first."""
    return [PastResult(**_result(row)) for row in await db.fetch(LIST_PAST_RESULTS, mail_id)]


async def _find(db: Queries, only: MailFilter, *, before: int | None, limit: int) -> list[int]:
    """Return the ids of mails that match, without their status, the newest first.

    One statement for each index: with one for all, a plan for any values could use none.
    """
    shared = (ID_MAX if before is None else before, only.from_at, only.until_at, limit)
    if only.recipient is not None:
        rows = await db.fetch(FIND_MAILS_TO, *shared, only.recipient.lower(), only.tag)
    elif only.tag is not None:
        rows = await db.fetch(FIND_MAILS_TAGGED, *shared, only.tag)
    else:
        rows = await db.fetch(FIND_MAILS, *shared)
    return [row["id"] for row in rows]


def _to_mail(row: Row) -> MailView:
    return MailView(**dict(row.items()))


def _result(row: Row) -> dict[str, Any]:
    return {("reply_class" if name == "class" else name): value for name, value in row.items()}
