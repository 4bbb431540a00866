"""Payments in the database, in the caller's transaction: look them up, and insert the new ones."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from penstock.domains.payments.lanes import LANE
from penstock.domains.payments.payment import Draft, Stored
from penstock.kernel import driver
from penstock.postgres.statement import statement

LOOK_UP_PAYMENTS = statement(__package__, "look_up_payments.sql")
LOCK_UNFINISHED = statement(__package__, "lock_unfinished.sql")
PERSIST_PAYMENTS = statement(__package__, "persist_payments.sql")


class LookedUp(NamedTuple):
    """The payments that are known, by id, the item types that exist, and the database's instant."""

    known: Mapping[str, Stored]
    item_types: frozenset[str]
    at: datetime


async def look_up(connection: object, drafts: Sequence[Draft], at: datetime | None) -> LookedUp:
    """Return what is known before drafts are scheduled; `at` replaces the database's instant."""
    ids = [each.payment_id for each in drafts]
    types = list({each.payment.item_type for each in drafts})
    row = await driver.fetch_row(connection, LOOK_UP_PAYMENTS, (ids, types, at), lane=LANE)
    columns: tuple[list[Any] | None, ...] = tuple(row)[:5]
    found_types, now = tuple(row)[5:]
    rows = zip(*(each or () for each in columns), strict=True)
    known = {stored.payment_id: stored for stored in map(_to_stored, rows)}
    return LookedUp(known, frozenset(found_types), now)


async def look_up_and_lock(
    connection: object, drafts: Sequence[Draft], at: datetime | None
) -> LookedUp:
    """Do the same as `look_up`, and lock those that were persisted and not enqueued.

    They are about to be enqueued. Verbs of operators lock a payment before the sum of its day, and
    so this comes before the rules, which lock sums.
    """
    found = await look_up(connection, drafts, at)
    unfinished = [each.payment_id for each in found.known.values() if each.is_unfinished]
    if not unfinished:
        return found
    await driver.fetch_row(connection, LOCK_UNFINISHED, (unfinished,), lane=LANE)
    # Somebody may have cancelled or enqueued them while the lock was waited for.
    return await look_up(connection, drafts, at)


async def persist(connection: object, drafts: Sequence[Draft], now: datetime) -> frozenset[str]:
    """Insert payments as SCHEDULED; return the ids of those that nobody else has inserted."""
    row = await driver.fetch_row(connection, PERSIST_PAYMENTS, _arguments(drafts, now), lane=LANE)
    return frozenset(row[0] or ())


def _to_stored(row: tuple[Any, ...]) -> Stored:
    payment_id, content_hash, status, scheduled_at, item_id = row
    return Stored(
        payment_id=payment_id,
        content_hash=content_hash,
        status=status,
        scheduled_at=scheduled_at,
        item_id=item_id,
    )


def _arguments(drafts: Sequence[Draft], now: datetime) -> tuple[Any, ...]:
    payments = [each.payment for each in drafts]
    return (
        [each.payment_id for each in payments],
        [each.item_type for each in payments],
        [each.money.text for each in drafts],
        [each.currency for each in payments],
        [_json(each.debtor) for each in payments],
        [_json(each.creditor) for each in payments],
        [each.participant_id for each in payments],
        [each.rail_type for each in payments],
        [_json(each.notify) for each in payments],
        [each.execute_at for each in payments],
        [each.content_hash for each in drafts],
        [each.init_workflow_id for each in drafts],
        [each.created_by for each in drafts],
        now,
        [each.day for each in drafts],
    )


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
