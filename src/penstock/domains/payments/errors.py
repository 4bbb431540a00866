"""The errors of payments.

PenstockError
├── NotFound: UnknownPayment, UnknownItemType, UnknownPaymentLimit, UnknownPaymentRule
├── Conflict: PaymentConflict, PaymentClaimed, PaymentRefused
└── Unavailable: InvalidCalendar
"""

from dataclasses import dataclass
from typing import ClassVar

from penstock.base.errors import Conflict, Exposure, NotFound, Unavailable


@dataclass(eq=False)
class UnknownPayment(NotFound):
    """There is no payment with this id."""

    code: ClassVar[str] = "unknown-payment"
    payment_id: str

    def __str__(self) -> str:
        return f"there is no payment {self.payment_id!r}"


@dataclass(eq=False)
class UnknownItemType(NotFound):
    """No row of payment_item_type says which lane executes this item type."""

    code: ClassVar[str] = "unknown-item-type"
    item_type: str

    def __str__(self) -> str:
        return f"there is no item type {self.item_type!r}; insert it into penstock.exec_rate_config"


@dataclass(eq=False)
class UnknownPaymentLimit(NotFound):
    """There is no limit of this participant, or of all, in this currency."""

    code: ClassVar[str] = "unknown-payment-limit"
    currency: str
    participant_id: str | None

    def __str__(self) -> str:
        whose = "all" if self.participant_id is None else repr(self.participant_id)
        return f"there is no limit of {whose} in {self.currency!r}"


@dataclass(eq=False)
class UnknownPaymentRule(NotFound):
    """The item type has no rule."""

    code: ClassVar[str] = "unknown-payment-rule"
    item_type: str

    def __str__(self) -> str:
        return f"item type {self.item_type!r} has no rule"


@dataclass(eq=False)
class PaymentConflict(Conflict):
    """The payment is known with other content; nothing was written.

    The hashes are those of what was asked for the first time and now.
    """

    code: ClassVar[str] = "payment-conflict"
    payment_id: str
    stored_hash: str
    given_hash: str

    def __str__(self) -> str:
        return (
            f"payment {self.payment_id!r} exists with other content "
            f"(stored {self.stored_hash}, given {self.given_hash})"
        )


@dataclass(eq=False)
class PaymentClaimed(Conflict):
    """The payment cannot be cancelled or rescheduled: a worker has claimed it, or it has ended."""

    code: ClassVar[str] = "payment-claimed"
    payment_id: str
    payment_status: str

    def __str__(self) -> str:
        return f"payment {self.payment_id!r} is {self.payment_status} and cannot be changed"


@dataclass(eq=False)
class PaymentRefused(Conflict):
    """A rule refuses the payment, which is valid; nothing was written.

    `rule` is `amount_max`, `day_amount_max` or `duplicate`.
    """

    code: ClassVar[str] = "payment-refused"
    payment_id: str
    rule: str
    reason: str

    def __str__(self) -> str:
        return f"payment {self.payment_id!r} is refused: {self.reason}"


@dataclass(eq=False)
class InvalidCalendar(Unavailable):
    """The calendar of an item type was written with SQL and is not valid; nothing was written.

    No payment of the type can be scheduled until an operator has corrected it.
    """

    code: ClassVar[str] = "invalid-calendar"
    exposes: ClassVar[Exposure] = "details"
    item_type: str
    field: str
    reason: str

    def __str__(self) -> str:
        return f"item type {self.item_type!r} has no valid calendar: {self.field}: {self.reason}"
