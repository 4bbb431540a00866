"""Cancel and reschedule a payment until a worker has claimed it. Both are audited.

On Temporal it can also be cancelled between its dispatch and its execution, which looks first. A
payment is locked before the sums of days, and these before slots, as phase A does it.
"""

from datetime import date, datetime

import msgspec
from msgspec.structs import replace

from penstock.base.errors import InvalidInput, PenstockError
from penstock.base.money import InstructedAmount
from penstock.domains.payments.errors import PaymentClaimed, UnknownPayment
from penstock.domains.payments.lanes import LANE, OWNER
from penstock.domains.payments.payment import Draft, NewPayment, Notify, Party
from penstock.domains.payments.rules import find_days, fingerprint_of
from penstock.domains.payments.steps import STEPS, Steps
from penstock.kernel import driver, operate
from penstock.kernel.audit import audit
from penstock.kernel.enqueue import check_instant
from penstock.kernel.errors import StateConflict, UnknownItem
from penstock.kernel.item import ItemId
from penstock.postgres.pool import Connection, Row
from penstock.postgres.statement import statement

LOCK_PAYMENT = statement(__package__, "lock_payment.sql")
CANCEL_PAYMENT = statement(__package__, "cancel_payment.sql")
GIVE_BACK_DAY_TOTAL = statement(__package__, "give_back_day_total.sql")
OPEN_DAY_TOTAL = statement(__package__, "open_day_total.sql")
LEAVE_DAY_TOTAL = statement(__package__, "leave_day_total.sql")
JOIN_DAY_TOTAL = statement(__package__, "join_day_total.sql")
FREE_FINGERPRINTS = statement(__package__, "free_fingerprints.sql")
RETAKE_DUE_INSTANT = statement(__package__, "retake_due_instant.sql")
RESCHEDULE_PAYMENT = statement(__package__, "reschedule_payment.sql")

DISPATCHED = "dispatched"  # To Temporal, which has not executed it.


async def cancel(db: Connection, payment_id: str, *, who: str, reason: str | None = None) -> None:
    """Cancel a scheduled payment, also one whose item is held or dead; a repeat is harmless.

    Raises PaymentClaimed while a worker has claimed it, and after it was executed.
    """
    async with db.transaction():
        row = await _lock(db, payment_id)
        if row["status"] == "CANCELLED":
            return
        if row["status"] != "SCHEDULED":
            raise PaymentClaimed(payment_id, row["status"])
        await db.execute(GIVE_BACK_DAY_TOTAL, payment_id)
        if row["item_id"] is not None:  # A first phase that ended early has not enqueued one.
            await _cancel_item(db, row, who=who, reason=reason)
        await db.execute(CANCEL_PAYMENT, payment_id, reason)


async def reschedule(
    db: Connection,
    payment_id: str,
    execute_at: datetime,
    *,
    who: str,
    reason: str | None = None,
    steps: Steps = STEPS,
) -> datetime:
    """Give a scheduled payment another instant, and return when it is executed.

    Rules, calendar and slot pool decide as if it was scheduled now. If they refuse it, or a worker
    has claimed it, which raises PaymentClaimed, nothing is changed.
    """
    check_instant("execute_at", execute_at)
    async with db.transaction():
        row = await _lock(db, payment_id)
        if row["status"] != "SCHEDULED":
            raise PaymentClaimed(payment_id, row["status"])
        if row["item_id"] is None:
            raise InvalidInput("payment_id", "the payment is not enqueued; schedule it again")
        before = _to_draft(row)
        changed = replace(before.payment, execute_at=execute_at)
        asked = steps.enrich(replace(before, payment=changed))
        counted_day = await _move_day(db, row, asked, steps=steps)
        (timed,) = await steps.determine_times(db, [asked], row["at"])
        item_id = ItemId(row["item_id"])
        arguments = (item_id, timed.scheduled_at or row["at"])
        (due_at,) = await driver.fetch_row(db, RETAKE_DUE_INSTANT, arguments, lane=LANE)
        try:
            await operate.reschedule(db, item_id, due_at, who=who, reason=reason, owner=OWNER)
        except (StateConflict, UnknownItem) as refused:
            raise PaymentClaimed(payment_id, _where(refused)) from refused
        await db.execute(RESCHEDULE_PAYMENT, payment_id, execute_at, due_at, counted_day)
        return due_at


async def _cancel_item(db: Connection, row: Row, *, who: str, reason: str | None) -> None:
    try:
        await operate.cancel(db, ItemId(row["item_id"]), who=who, reason=reason, owner=OWNER)
    except (StateConflict, UnknownItem) as refused:
        where = _where(refused)
        if where != DISPATCHED:
            raise PaymentClaimed(row["payment_id"], where) from refused
        # Its workflow finds the payment cancelled, whenever it starts or is started again.
        after = {"status": "CANCELLED", "reason": reason}
        await audit(
            db, who, "payment.cancelled", subject=row["payment_id"],
            before={"status": row["status"], "is": DISPATCHED}, after=after,
        )  # fmt: skip


def _where(refused: StateConflict | UnknownItem) -> str:
    """Return where a payment is whose item cannot be changed. On Temporal it is done early."""
    if isinstance(refused, UnknownItem):
        return DISPATCHED  # Its item was removed by retention.
    return {"leased": "claimed", "done": DISPATCHED}.get(refused.state, refused.state)


async def _move_day(db: Connection, row: Row, asked: Draft, *, steps: Steps) -> date | None:
    """Apply the rules to the day of its new instant, and count the payment there, not twice.

    Returns the day in whose sum it is counted; raises why the rules refuse it.
    """
    (new_day,) = await find_days(db, [asked], row["at"])
    whose, amount = (row["participant_id"], row["currency"]), row["amount"]
    if row["counted_day"] is not None:
        await db.execute(OPEN_DAY_TOTAL, *whose, new_day)
        await db.execute(LEAVE_DAY_TOTAL, *whose, row["counted_day"], new_day, amount)
    (ruled,) = await steps.apply_rules(db, [asked], row["at"])
    if isinstance(ruled, PenstockError):
        raise ruled
    await db.execute(FREE_FINGERPRINTS, asked.payment_id, fingerprint_of(asked, new_day))
    return await db.fetchval(JOIN_DAY_TOTAL, *whose, new_day, amount)


async def _lock(db: Connection, payment_id: str) -> Row:
    """Return a payment, which nobody else moves meanwhile."""
    row = None if "\x00" in payment_id else await db.fetchrow(LOCK_PAYMENT, payment_id)
    if row is None:
        raise UnknownPayment(payment_id)
    return row


def _to_draft(row: Row) -> Draft:
    """Return a payment as it was asked for."""
    money = InstructedAmount(row["amount"], row["currency"])
    return Draft(
        payment=NewPayment(
            payment_id=row["payment_id"],
            amount=money.text,
            currency=row["currency"],
            debtor=msgspec.json.decode(row["debtor"], type=Party),
            creditor=msgspec.json.decode(row["creditor"], type=Party),
            participant_id=row["participant_id"],
            rail_type=row["rail_type"],
            item_type=row["item_type"],
            execute_at=row["execute_at"],
            notify=msgspec.json.decode(row["notify"], type=Notify),
        ),
        money=money,
        content_hash=row["content_hash"],
        created_by=row["created_by"],
    )
