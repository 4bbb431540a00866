"""Limits: the highest amount, the threshold for an approval, and the sum of a participant per day.

They are applied when an instruction is first about to be sent (checks.py), so that they apply to
every producer, and a change applies to what waits.
"""

from dataclasses import dataclass, replace
from decimal import Decimal

from penstock.base.errors import InvalidInput
from penstock.base.money import check_limits, plain
from penstock.domains.outbox.control.control_scope import ControlScope, check_known, check_scope
from penstock.domains.outbox.errors import UnknownOutboxLimit
from penstock.kernel.audit import audit
from penstock.postgres.pool import Connection, Queries, Row
from penstock.postgres.statement import statement

PUT_LIMITS = statement(__package__, "put_limits.sql")
REMOVE_LIMITS = statement(__package__, "remove_limits.sql")
READ_LIMITS = statement(__package__, "read_limits.sql")
LIST_LIMITS = statement(__package__, "list_limits.sql")

AMOUNTS = ("amount_max", "approval_above", "day_amount_max")
NO_NUMBER = "give it or another number; DELETE, or `outbox limit remove`, removes the limits"


@dataclass(frozen=True, slots=True, kw_only=True)
class AmountLimits:
    """Limits in one currency. Each number of a participant comes before that of a rail or of all.

    Over `amount_max` an instruction fails. Over `approval_above`, or if the participant's sum on a
    day of UTC would be over `day_amount_max`, it waits for an approval.
    """

    scope: ControlScope
    name: str | None
    currency: str
    amount_max: Decimal | None = None
    approval_above: Decimal | None = None
    day_amount_max: Decimal | None = None


async def put_limits(db: Connection, limits: AmountLimits, *, who: str) -> AmountLimits:
    """Create or replace limits; raises InvalidInput, also if there is no number."""
    name = check_scope(limits.scope, limits.name)
    _check(limits)
    numbers = [getattr(limits, field) for field in AMOUNTS]
    await check_known(db, limits.scope, name)
    async with db.transaction():
        row = await db.fetchrow(READ_LIMITS, limits.scope, name, limits.currency)
        await db.execute(PUT_LIMITS, limits.scope, name, limits.currency, *numbers)
        await audit(
            db, who, "outbox_limit.changed", subject=f"{limits.scope} {name} {limits.currency}",
            before=None if row is None else _shown(AmountLimits(**dict(row.items()))),
            after=_shown(limits),
        )  # fmt: skip
    return replace(limits, name=name)


async def remove_limits(
    db: Connection, currency: str, *, scope: ControlScope, name: str | None, who: str
) -> None:
    """Remove the limits of a scope in one currency, or raise UnknownOutboxLimit."""
    stored = check_scope(scope, name)
    async with db.transaction():
        row = await db.fetchrow(REMOVE_LIMITS, scope, stored, currency)
        if row is None:
            raise UnknownOutboxLimit(scope, stored, currency)
        await audit(
            db, who, "outbox_limit.removed", subject=f"{scope} {stored} {currency}",
            before=_shown(AmountLimits(**dict(row.items()))),
        )  # fmt: skip


async def list_limits(db: Queries) -> list[AmountLimits]:
    """Return all limits."""
    return [_to_limits(row) for row in await db.fetch(LIST_LIMITS)]


def _to_limits(row: Row) -> AmountLimits:
    numbers = {field: row[field] for field in AMOUNTS if row[field] is not None}
    shown = {field: plain(amount) for field, amount in numbers.items()}
    return AmountLimits(**dict(row.items(), **shown))


def _check(limits: AmountLimits) -> None:
    check_limits({field: getattr(limits, field) for field in AMOUNTS}, limits.currency)
    if (
        limits.amount_max is not None
        and limits.approval_above is not None
        and limits.approval_above >= limits.amount_max
    ):
        raise InvalidInput("approval_above", "must be below amount_max: over that, nothing leaves")
    if limits.scope == "rail" and limits.day_amount_max is not None:
        raise InvalidInput("day_amount_max", "applies to all or a participant: it covers all rails")
    if all(getattr(limits, field) is None for field in AMOUNTS):
        raise InvalidInput("amount_max", NO_NUMBER)


def _shown(limits: AmountLimits) -> dict[str, str]:
    """Return the numbers that are set, as text: JSON has no exact ones."""
    numbers = {field: getattr(limits, field) for field in AMOUNTS}
    return {field: f"{amount:f}" for field, amount in numbers.items() if amount is not None}
