"""Limits of amounts in one currency, for one payment and for a day, of a participant or of all.

They are applied when a payment is scheduled or rescheduled (rules.py), and not to what waits.
"""

from dataclasses import dataclass
from decimal import Decimal

from penstock.base.errors import InvalidInput
from penstock.base.money import check_limits, plain
from penstock.domains.payments.errors import UnknownPaymentLimit
from penstock.domains.payments.validate import check_text
from penstock.kernel.audit import audit
from penstock.postgres.pool import Connection, Queries, Row
from penstock.postgres.statement import statement

READ_PAYMENT_LIMIT = statement(__package__, "read_payment_limit.sql")
PUT_PAYMENT_LIMIT = statement(__package__, "put_payment_limit.sql")
REMOVE_PAYMENT_LIMIT = statement(__package__, "remove_payment_limit.sql")
LIST_PAYMENT_LIMITS = statement(__package__, "list_payment_limits.sql")

AMOUNTS = ("amount_max", "day_amount_max")
NO_NUMBER = "give it, or day_amount_max; DELETE, or `payment limit remove`, removes the limit"
ALL = ""  # In the place of a participant, in the table.


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentLimit:
    """Limits in one currency; without a participant, of all that have no number of their own.

    `day_amount_max` is a participant's sum for a day of UTC.
    """

    currency: str
    participant_id: str | None = None
    amount_max: Decimal | None = None
    day_amount_max: Decimal | None = None


async def put_limit(db: Connection, limit: PaymentLimit, *, who: str) -> None:
    """Create or replace a limit; raises InvalidInput."""
    _check(limit)
    whose = (limit.participant_id or ALL, limit.currency)
    async with db.transaction():
        row = await db.fetchrow(READ_PAYMENT_LIMIT, *whose)
        await db.execute(PUT_PAYMENT_LIMIT, *whose, limit.amount_max, limit.day_amount_max)
        await audit(
            db, who, "payment_limit.changed",
            subject=_subject(limit.participant_id, limit.currency),
            before=None if row is None else _shown(_to_limit(row)), after=_shown(limit),
        )  # fmt: skip


async def remove_limit(
    db: Connection, currency: str, participant_id: str | None = None, *, who: str
) -> None:
    """Remove a limit, or raise UnknownPaymentLimit."""
    if "\x00" in currency + (participant_id or ALL):
        raise UnknownPaymentLimit(currency, participant_id)
    async with db.transaction():
        row = await db.fetchrow(REMOVE_PAYMENT_LIMIT, participant_id or ALL, currency)
        if row is None:
            raise UnknownPaymentLimit(currency, participant_id)
        await audit(
            db, who, "payment_limit.removed", subject=_subject(participant_id, currency),
            before=_shown(_to_limit(row)),
        )  # fmt: skip


async def list_limits(db: Queries) -> list[PaymentLimit]:
    """Return all limits, those of all participants first."""
    return [_to_limit(row) for row in await db.fetch(LIST_PAYMENT_LIMITS)]


def _check(limit: PaymentLimit) -> None:
    if limit.participant_id is not None:
        check_text("participant_id", limit.participant_id)
    numbers: dict[str, Decimal | None] = {field: getattr(limit, field) for field in AMOUNTS}
    check_limits(numbers, limit.currency)
    if all(amount is None for amount in numbers.values()):
        raise InvalidInput("amount_max", NO_NUMBER)


def _to_limit(row: Row) -> PaymentLimit:
    numbers = {field: row[field] for field in AMOUNTS if row[field] is not None}
    shown = {field: plain(amount) for field, amount in numbers.items()}
    return PaymentLimit(
        currency=row["currency"], participant_id=row["participant_id"] or None, **shown
    )


def _shown(limit: PaymentLimit) -> dict[str, str]:
    """Return the numbers that are set, as text: JSON has no exact ones."""
    numbers = {field: getattr(limit, field) for field in AMOUNTS}
    return {field: f"{amount:f}" for field, amount in numbers.items() if amount is not None}


def _subject(participant_id: str | None, currency: str) -> str:
    return f"{participant_id or '*'} {currency}"
