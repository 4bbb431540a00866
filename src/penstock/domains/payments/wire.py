"""What goes over HTTP about payments, as types. Input refuses unknown fields.

Payments from Kafka and of workflows are read here too: a field that is misspelt, and dropped, would
be a payment that is paid now.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import Meta, Struct, field

from penstock.base.errors import InvalidInput, PenstockError
from penstock.base.unique_keys import check_unique_keys
from penstock.contract.paging import Limit
from penstock.domains.payments import inspect, payment, story
from penstock.domains.payments.errors import PaymentConflict
from penstock.domains.payments.payment import PAYMENT, PaymentStatus
from penstock.kernel.errors import KeyConflict

BATCH_MAX = 1_000

Instant = Annotated[datetime, Meta(tz=True)]
Name = Annotated[str, Meta(min_length=1, max_length=255)]
Reason = Annotated[str, Meta(min_length=1, max_length=500)]
Cursor = Annotated[str, Meta(description="The `next` of the page before.", max_length=1_400)]

# ------------------------------------------------------------------------------- parameters


class PaymentPath(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which payment."""

    payment_id: Name


class PaymentQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of payments; `from` and `until` are compared with the scheduled instant."""

    status: PaymentStatus | None = None
    item_type: Name | None = None
    participant_id: Name | None = None
    from_: Instant | None = field(name="from", default=None)
    until: Instant | None = None
    after: Cursor | None = None
    limit: Limit = 100


# ------------------------------------------------------------------------------------ bodies


class Party(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who pays, or who is paid."""

    name: str
    iban: str
    bic: str | None = None


class Notify(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where notifications of the result go: to an address, and to subscribers of events."""

    mail: str | None = None
    event: bool = False


class NewPayment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A payment to schedule; without `execute_at` it is due at once."""

    payment_id: Name
    amount: str
    currency: str
    debtor: Party
    creditor: Party
    participant_id: Name
    rail_type: Name
    item_type: Name = PAYMENT
    execute_at: Instant | None = None
    notify: Notify = Notify()


class PaymentCancellation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why, if the operator says so; it is kept in the audit."""

    reason: Reason | None = None


class Reschedule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The new instant, and why if the operator says so."""

    execute_at: Instant
    reason: Reason | None = None


# ----------------------------------------------------------------------------------- answers


class ScheduledPayment(Struct, frozen=True, kw_only=True):
    """The payment is stored. A payment that is known may have moved on."""

    payment_id: str
    status: PaymentStatus
    scheduled_at: Instant | None


class Result(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one payment of a batch; `code` and the hashes are those of a refusal."""

    index: int
    outcome: Literal["scheduled", "existing", "conflict", "invalid", "refused"]
    payment_id: str | None = None
    status: PaymentStatus | None = None
    scheduled_at: Instant | None = None
    code: str | None = None
    detail: str | None = None
    stored_hash: str | None = None
    given_hash: str | None = None


class Payment(Struct, frozen=True, kw_only=True):
    """A payment and how far it is."""

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
    execute_at: Instant | None
    scheduled_at: Instant | None
    content_hash: str
    outbox_id: UUID | None
    rail_reference: str | None
    reason: str | None
    created_by: str
    created_at: Instant
    accepted_at: Instant | None
    processing_at: Instant | None
    ended_at: Instant | None


class PaymentPage(Struct, frozen=True, kw_only=True):
    """Payments, the last scheduled first; `next` is the `after` of the next page."""

    payments: list[Payment]
    next: str | None


class ItemPlace(Struct, frozen=True, kw_only=True):
    """The kernel's item of the payment: where it is, and how often it was tried."""

    id: int
    lane: str
    state: str
    reason: str | None
    due_at: Instant
    attempts: int


class PaymentDetail(Struct, frozen=True, kw_only=True):
    """A payment, its context, and its item; null once the lane's retention has removed it."""

    payment: Payment
    context: dict[str, Any] | None
    context_version: int | None
    item: ItemPlace | None


class PaymentStory(PaymentDetail, frozen=True, kw_only=True):
    """A payment, and what happened to it in each domain that this process runs."""

    slot: story.SlotStory | None
    attempts: Sequence[story.Attempt]
    instruction: story.InstructionStory | None
    events: Sequence[story.EventStory]
    mails: Sequence[story.MailStory]


# ------------------------------------------------------------------------------ conversions


def read_new_payment(document: bytes | str, *, name: str) -> payment.NewPayment:
    """Return a payment that is given as JSON; raises InvalidInput, where `name` is the document."""
    try:
        given = _new_payment.decode(document)
    except UnicodeError as malformed:
        raise InvalidInput(name, "is not UTF-8") from malformed
    except (msgspec.DecodeError, RecursionError) as malformed:
        raise InvalidInput(name, str(malformed)) from malformed
    check_unique_keys(document)
    return to_new_payment(given)


_new_payment = msgspec.json.Decoder(NewPayment)


def find_payment_id(document: bytes) -> str | None:
    """Return the id of a payment that is refused, or None if it has none or more than one."""
    try:
        given = _named.decode(document)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    try:
        check_unique_keys(document)
    except InvalidInput as refused:
        return None if refused.field == "payment_id" else given.payment_id
    except ValueError:
        return None  # Text or JSON that is not valid, in a field that was not decoded.
    return given.payment_id


class _Named(Struct, frozen=True, kw_only=True):
    """What is read of a payment that is refused."""

    payment_id: Name


_named = msgspec.json.Decoder(_Named)


def to_new_payment(given: NewPayment) -> payment.NewPayment:
    """Return a payment as the domain takes it."""
    return msgspec.convert(given, payment.NewPayment, from_attributes=True)


def to_wire_scheduled(found: payment.Scheduled) -> ScheduledPayment:
    """Return a scheduled payment for a response."""
    return ScheduledPayment(
        payment_id=found.payment_id, status=found.status, scheduled_at=found.scheduled_at
    )


def to_wire_result(index: int, answer: payment.ScheduleResult, *, payment_id: str | None) -> Result:
    """Return what became of one payment of a batch; `payment_id` is None if it cannot be read."""
    match answer:
        case payment.Scheduled():
            return Result(
                index=index,
                outcome="scheduled" if answer.is_new else "existing",
                payment_id=answer.payment_id,
                status=answer.status,
                scheduled_at=answer.scheduled_at,
            )
        case PaymentConflict():
            return Result(
                index=index,
                outcome="conflict",
                payment_id=answer.payment_id,
                code=answer.code,
                detail=str(answer),
                stored_hash=answer.stored_hash,
                given_hash=answer.given_hash,
            )
        case KeyConflict():
            return Result(
                index=index,
                outcome="conflict",
                payment_id=answer.key,
                code=answer.code,
                detail=str(answer),
                stored_hash=answer.stored_hash,
                given_hash=answer.given_hash,
            )
        case PenstockError() if answer.status < 500:
            return Result(
                index=index,
                outcome="invalid" if isinstance(answer, InvalidInput) else "refused",
                payment_id=payment_id,
                code=answer.code,
                detail=str(answer),
            )
        case _:
            raise answer


def to_wire_payment(found: inspect.PaymentView) -> Payment:
    """Return a payment for a response."""
    return msgspec.convert(found, Payment, from_attributes=True)


def to_wire_story(found: inspect.PaymentDetail, timeline: story.Story) -> PaymentStory:
    """Return a payment with its story for a response."""
    parts = msgspec.structs.asdict(to_wire_detail(found)) | msgspec.structs.asdict(timeline)
    return PaymentStory(**parts)


def to_wire_detail(found: inspect.PaymentDetail) -> PaymentDetail:
    """Return a payment with its context and item for a response."""
    item = found.item
    return PaymentDetail(
        payment=to_wire_payment(found.payment),
        context=found.context,
        context_version=found.context_version,
        item=None if item is None else msgspec.convert(item, ItemPlace, from_attributes=True),
    )
