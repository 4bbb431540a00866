"""Payments as a person looks at them: one, with its context and its item, or a page. Reads only."""

from base64 import b64decode, urlsafe_b64encode
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from penstock.base.clock import EPOCH, MICROSECOND
from penstock.base.errors import InvalidInput
from penstock.base.money import InstructedAmount
from penstock.base.paging import cut_page
from penstock.domains.payments.errors import UnknownPayment
from penstock.domains.payments.payment import PaymentStatus
from penstock.kernel.enqueue import check_instant
from penstock.kernel.inspect import ItemView, read_item
from penstock.kernel.item import ItemId
from penstock.postgres.pool import Queries, Row
from penstock.postgres.statement import statement

READ_PAYMENT = statement(__package__, "read_payment.sql")
LIST_PAYMENTS = statement(__package__, "list_payments.sql")

LOOKED_AT_MAX = 1_000  # Payments that one page with a filter looks at: the status has no index.


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentFilter:
    """Which payments; `from_at` and `until_at` are compared with the scheduled instant."""

    status: PaymentStatus | None = None
    item_type: str | None = None
    participant_id: str | None = None
    from_at: datetime | None = None
    until_at: datetime | None = None

    @property
    def is_selective(self) -> bool:
        """Whether a row that was looked at may be left out."""
        return any((self.status, self.item_type, self.participant_id))


ALL = PaymentFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentView:
    """A payment and how far it is. `amount` has all decimals of its currency."""

    payment_id: str
    item_type: str
    status: PaymentStatus
    amount: str
    currency: str
    debtor: dict[str, Any]
    creditor: dict[str, Any]
    participant_id: str
    rail_type: str
    notify: dict[str, Any]
    execute_at: datetime | None
    scheduled_at: datetime | None
    content_hash: str
    item_id: int | None
    init_workflow_id: str | None
    outbox_id: UUID | None
    rail_reference: str | None
    reason: str | None
    created_by: str
    created_at: datetime
    accepted_at: datetime | None
    processing_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentDetail:
    """A payment, its context, and the kernel's item; None once retention has removed it."""

    payment: PaymentView
    context: dict[str, Any] | None
    context_version: int | None
    item: ItemView | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentPage:
    """Payments, the last scheduled first; `next` is the `after` of the next page."""

    payments: list[PaymentView]
    next: str | None


async def read_payment(db: Queries, payment_id: str) -> PaymentDetail:
    """Return one payment, or raise UnknownPayment."""
    row = None if "\x00" in payment_id else await db.fetchrow(READ_PAYMENT, payment_id)
    if row is None:
        raise UnknownPayment(payment_id)
    item_id: int | None = row["item_id"]
    context: str | None = row["context_json"]
    return PaymentDetail(
        payment=_to_view(row),
        context=None if context is None else msgspec.json.decode(context),
        context_version=row["context_version"],
        item=None if item_id is None else await read_item(db, ItemId(item_id)),
    )


async def list_payments(
    db: Queries, *, only: PaymentFilter = ALL, after: str | None = None, limit: int = 100
) -> PaymentPage:
    """Return a page of payments; `after` continues it.

    A filter looks at LOOKED_AT_MAX payments, so that a page may have fewer than `limit`, or none,
    and still a `next`. Raises InvalidInput for a cursor that is not valid.
    """
    check_instant("from", only.from_at)
    check_instant("until", only.until_at)
    looked_max = max(limit + 1, LOOKED_AT_MAX) if only.is_selective else limit + 1
    before_at, before_id = (None, None) if after is None else _read_cursor(after)
    rows = await db.fetch(
        LIST_PAYMENTS, before_at, before_id, only.from_at, only.until_at, looked_max
    )
    found = [row for row in rows if _matches(row, only)]
    looked_until = None if len(rows) < looked_max else _cursor(rows[-1])
    page, after = cut_page(found, limit, _cursor, looked_until=looked_until)
    return PaymentPage(payments=[_to_view(row) for row in page], next=after)


def _matches(row: Row, only: PaymentFilter) -> bool:
    return (
        only.status in (None, row["status"])
        and only.item_type in (None, row["item_type"])
        and only.participant_id in (None, row["participant_id"])
    )


def _cursor(row: Row) -> str:
    microseconds = (row["scheduled_at"] - EPOCH) // MICROSECOND
    # An id may have characters that end a query string.
    return f"{microseconds}.{urlsafe_b64encode(row['payment_id'].encode()).decode()}"


def _read_cursor(text: str) -> tuple[datetime, str]:
    number, point, encoded = text.partition(".")
    if not (point and number.isascii() and number.isdecimal()):
        raise InvalidInput("after", "is not a valid cursor")
    try:
        payment_id = b64decode(encoded, altchars="-_", validate=True).decode()
        scheduled_at = EPOCH + int(number) * MICROSECOND
    except (OverflowError, ValueError) as refused:
        raise InvalidInput("after", "is not a valid cursor") from refused
    if "\x00" in payment_id:
        raise InvalidInput("after", "is not a valid cursor")
    return scheduled_at, payment_id


def _to_view(row: Row) -> PaymentView:
    fields = {name: row[name] for name in PaymentView.__dataclass_fields__}
    for name in ("debtor", "creditor", "notify"):
        fields[name] = msgspec.json.decode(fields[name])
    fields["amount"] = InstructedAmount(row["amount"], row["currency"]).text
    return PaymentView(**fields)
