"""The rules of phase A: limits of amounts and duplicates, by rows that an operator changes.

What a rule counts is locked until the transaction ends; `persist` adds what is new.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from penstock.base.errors import InvalidInput, PenstockError
from penstock.domains.payments.errors import PaymentRefused
from penstock.domains.payments.lanes import LANE
from penstock.domains.payments.payment import Draft
from penstock.domains.payments.timing import find_openings
from penstock.kernel import driver
from penstock.postgres.statement import statement

HAS_RULES = statement(__package__, "has_rules.sql")
READ_PAYMENT_RULES = statement(__package__, "read_payment_rules.sql")


class _Known(NamedTuple):
    """What the database knows about one payment; `holder` has the same content on the same day."""

    amount_max: Decimal | None
    day_amount_max: Decimal | None
    day_total: Decimal | None
    holder: str | None


async def apply_rules(
    connection: object, drafts: Sequence[Draft], now: datetime
) -> Sequence[Draft | PenstockError]:
    """Return each draft with its day, or why it is refused.

    Earlier payments of a batch count for later ones.
    """
    (has_rules,) = await driver.fetch_row(connection, HAS_RULES, (), lane=LANE)
    if not has_rules:
        return drafts
    days = await find_days(connection, drafts, now)
    arguments = _arguments(drafts, days)
    row = await driver.fetch_row(connection, READ_PAYMENT_RULES, arguments, lane=LANE)
    answers: list[Draft | PenstockError] = []
    sums: defaultdict[tuple[str, str, date], Decimal] = defaultdict(Decimal)
    for draft, day, columns in zip(drafts, days, zip(*row, strict=True), strict=True):
        key = (draft.payment.participant_id, draft.money.currency, day)
        refused = _refusal(draft, _Known(*columns), sums[key])
        if refused is None:
            sums[key] += draft.money.amount
        answers.append(refused or replace(draft, day=day))
    return answers


async def find_days(connection: object, drafts: Sequence[Draft], now: datetime) -> list[date]:
    """Return the days of UTC on which payments are executed, before a slot pool delays them.

    Not the days that were asked for: what is asked for in the past, or while it is closed, is
    executed with others on a later day.
    """
    openings = await find_openings(connection, drafts, now)
    return [_day_of(each, opening, now) for each, opening in zip(drafts, openings, strict=True)]


def _day_of(draft: Draft, opening: datetime | InvalidInput, now: datetime) -> date:
    # Without an opening it is refused when its instant is determined, whatever its day is.
    at = draft.payment.execute_at if isinstance(opening, InvalidInput) else opening
    return max(at or now, now).astimezone(UTC).date()


def fingerprint_of(draft: Draft, day: date) -> str:
    """Return the same text for payments of the same content on one day, whatever their ids are."""
    payment = draft.payment
    content = (
        payment.item_type,
        payment.participant_id,
        payment.debtor.iban,
        payment.creditor.iban,
        draft.money.text,
        draft.money.currency,
        day,
    )
    return sha256(msgspec.json.encode(content)).hexdigest()


def _refusal(draft: Draft, known: _Known, before: Decimal) -> PaymentRefused | None:
    """Return why a payment is refused; `before` is the sum of those of the batch before it."""
    amount, currency = draft.money.amount, draft.money.currency
    if known.amount_max is not None and amount > known.amount_max:
        reason = f"the amount is over {known.amount_max:f} {currency}"
        return PaymentRefused(draft.payment_id, "amount_max", reason)
    total = (known.day_total or 0) + before + amount
    if known.day_amount_max is not None and total > known.day_amount_max:
        reason = f"the sum of the day would be over {known.day_amount_max:f} {currency}"
        return PaymentRefused(draft.payment_id, "day_amount_max", reason)
    if known.holder not in (None, draft.payment_id):
        reason = f"payment {known.holder!r} has the same content on the same day"
        return PaymentRefused(draft.payment_id, "duplicate", reason)
    return None


def _arguments(drafts: Sequence[Draft], days: Sequence[date]) -> tuple[Any, ...]:
    payments = [each.payment for each in drafts]
    return (
        [each.payment_id for each in payments],
        [each.item_type for each in payments],
        [each.participant_id for each in payments],
        [each.currency for each in payments],
        days,
        [fingerprint_of(each, day) for each, day in zip(drafts, days, strict=True)],
    )
