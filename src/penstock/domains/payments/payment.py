"""A payment: as it is asked for, as phase A completes it, and the states that it goes through."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from penstock.base.errors import PenstockError
from penstock.base.money import InstructedAmount
from penstock.domains.payments.errors import PaymentConflict

# `SCHEDULED` waits, `ACCEPTED` is being executed, `PROCESSING` is with the rail, and `UNKNOWN` may
# have been paid. The other four are final, except that a settled payment may be returned.
PaymentStatus = Literal[
    "SCHEDULED",
    "ACCEPTED",
    "PROCESSING",
    "SETTLED",
    "REJECTED",
    "RETURNED",
    "CANCELLED",
    "UNKNOWN",
]

PAYMENT = "PAYMENT"  # The item type that is always there.


class Party(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who pays, or who is paid."""

    name: str
    iban: str
    bic: str | None = None


class Notify(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where notifications of the result go: to an address, and to subscribers of events."""

    mail: str | None = None
    event: bool = False


class NewPayment(Struct, frozen=True, kw_only=True):
    """A payment to schedule. `amount` is a decimal string; without `execute_at` it is due at once.

    `participant_id` and `rail_type` are those of the instruction that executes it.
    """

    payment_id: str
    amount: str
    currency: str
    debtor: Party
    creditor: Party
    participant_id: str
    rail_type: str
    item_type: str = PAYMENT
    execute_at: datetime | None = None
    notify: Notify = Notify()


class Draft(Struct, frozen=True, kw_only=True):
    """A payment on its way through the first phase; each step fills in what it finds.

    `debtor` and `creditor` are what enrichment adds to the parties. `init_workflow_id` is the
    workflow that schedules the payment, if one does. `day` is the one that rules count it on.
    """

    payment: NewPayment
    money: InstructedAmount
    content_hash: str
    created_by: str = ""
    init_workflow_id: str | None = None
    debtor: Mapping[str, Any] = {}
    creditor: Mapping[str, Any] = {}
    day: date | None = None
    scheduled_at: datetime | None = None
    context: Mapping[str, Any] = {}
    context_version: int = 0

    @property
    def payment_id(self) -> str:
        return self.payment.payment_id


class Scheduled(Struct, frozen=True, kw_only=True):
    """The payment is stored; `is_new` is false if it was known with the same content.

    `status` and `scheduled_at` are the present ones: a payment that is known may have moved on.
    """

    payment_id: str
    status: PaymentStatus
    scheduled_at: datetime | None
    item_id: int | None
    is_new: bool


class Queued(Struct, frozen=True):
    """The item of a payment, and its due instant."""

    item_id: int
    scheduled_at: datetime


class Stored(Struct, frozen=True, kw_only=True):
    """What is known of a payment. Without `item_id` it was persisted and not yet enqueued."""

    payment_id: str
    content_hash: str
    status: PaymentStatus
    scheduled_at: datetime | None
    item_id: int | None

    @property
    def is_unfinished(self) -> bool:
        return self.item_id is None and self.status == "SCHEDULED"

    def answer(self, draft: Draft) -> Scheduled | PaymentConflict:
        """Return the first answer to the same content, or a conflict."""
        if draft.content_hash != self.content_hash:
            return PaymentConflict(self.payment_id, self.content_hash, draft.content_hash)
        return Scheduled(
            payment_id=self.payment_id,
            status=self.status,
            scheduled_at=self.scheduled_at,
            item_id=self.item_id,
            is_new=False,
        )


ScheduleResult: TypeAlias = Scheduled | PenstockError
