"""Operators' verbs for instructions: hold, release and skip. Each is audited with a reason."""

from datetime import datetime
from uuid import UUID

from penstock.domains.outbox.audit.archive import Archive
from penstock.domains.outbox.control.doubt import refuse_doubt, refuse_paid
from penstock.domains.outbox.control.gap import add_gap
from penstock.domains.outbox.control.instruction_facts import (
    InstructionFacts,
    lock_facts,
    read_facts,
)
from penstock.domains.outbox.errors import DecisionRefused
from penstock.domains.outbox.lanes import OWNER
from penstock.domains.outbox.lookup import find_unknown
from penstock.kernel import operate
from penstock.kernel.inspect import read_item
from penstock.postgres.pool import Connection

RELEASED = "RELEASED"  # The error_code of a failed instruction that is tried again.
SKIPPED = "SKIPPED"
HELD_BY_OPERATOR = "held: "
LOST_MAX = 1_000  # Lost attempts that are archived before a release.
RETURNED = (
    "was returned; penstock outbox skip lets the next one leave, and another key sends it again"
)
PASSED_OVER = "was skipped: later ones have left"
PAID_AFTER_SKIP = (
    "was skipped: later ones have left; it was paid after that, stays failed, and nothing is to be "
    "done: its attempts and penstock outbox gaps show both"
)


async def hold(
    db: Connection, outbox_id: UUID, *, who: str, reason: str, now: datetime | None = None
) -> None:
    """Keep the head of a participant from being sent; raises StateConflict for any other.

    Raises ResultUnknown for one that may have been paid: held by an operator, it would wait like
    any other, and nobody would see the doubt.
    """
    before = await read_facts(db, outbox_id)
    item = await read_item(db, before.item_id)
    if before.may_be_paid and item is not None and item.state == "held":
        raise refuse_doubt(before, item)
    # Apart from the reasons for which the domain holds: only an operator releases it.
    held_for = HELD_BY_OPERATOR + reason
    async with db.transaction():
        await operate.hold(db, before.item_id, who=who, reason=held_for, owner=OWNER, now=now)
        # Read after the item was taken from the workers: one may have sent it a moment ago.
        facts = await read_facts(db, outbox_id)
        if facts.may_be_paid:
            raise refuse_doubt(facts, item)


async def release(
    db: Connection,
    outbox_id: UUID,
    *,
    archive: Archive,
    who: str,
    reason: str,
    now: datetime | None = None,
) -> None:
    """Try a held instruction again, or a failed one that blocks its participant.

    What was sent before is looked up at the rail first. What still awaits an approval, or whose
    participant is suspended, is held again. Raises StateConflict, or DecisionRefused for a
    failed instruction that was returned or skipped, or sent again under another key.
    """
    operate.check_decision(who=who, reason=reason)
    async with db.transaction():
        facts = await lock_facts(db, outbox_id)
        await archive_lost(db, archive, now=now)
        item = await read_item(db, facts.item_id)
        if item is not None and item.state == "dead":
            await _release_failed(db, facts, archive=archive, who=who, reason=reason, now=now)
            return
        await operate.release(db, facts.item_id, who=who, reason=reason, owner=OWNER, now=now)


async def archive_lost(db: Connection, archive: Archive, *, now: datetime | None = None) -> None:
    """Archive what dead workers left as UNKNOWN, before a release takes it from the reconciler."""
    await archive.publish(db, await find_unknown(db, limit=LOST_MAX, now=now))


async def _release_failed(
    db: Connection,
    facts: InstructionFacts,
    *,
    archive: Archive,
    who: str,
    reason: str,
    now: datetime | None,
) -> None:
    """Try a failed instruction again in its place.

    Its producer may send it again under another key once it has failed. The lock and the row in the
    archive, which is not FAILED, keep both from happening. One that was paid after all is not sent:
    its next attempt ends it as dispatched.
    """
    if facts.is_sent_again and not facts.is_paid:
        raise DecisionRefused(str(facts.outbox_id), "was sent again under another key")
    if facts.is_skipped:
        raise DecisionRefused(
            str(facts.outbox_id), PAID_AFTER_SKIP if facts.is_paid else PASSED_OVER
        )
    if facts.is_returned:
        raise DecisionRefused(str(facts.outbox_id), RETURNED)
    await archive.write(
        db, facts.outbox_id, "ZOMBIE_REQUEUE", who=who, error_code=RELEASED, error_message=reason
    )
    await operate.retry(db, facts.item_id, who=who, reason=reason, owner=OWNER, now=now)


async def skip(
    db: Connection,
    outbox_id: UUID,
    *,
    archive: Archive,
    who: str,
    reason: str,
    now: datetime | None = None,
) -> None:
    """End the head of a participant as failed, so that the next one leaves; the gap is recorded.

    Raises ResultUnknown for one that may have been paid, DecisionRefused for one that is paid, and
    StateConflict for one in flight, one that has ended, and one that is not the head.
    """
    async with db.transaction():
        before = await lock_facts(db, outbox_id)
        item = await read_item(db, before.item_id)
        await operate.skip(db, before.item_id, who=who, reason=reason, owner=OWNER, now=now)
        # Read after the item was taken from the workers: one may have sent it a moment ago.
        facts = await read_facts(db, outbox_id)
        if facts.is_paid:
            raise refuse_paid(facts, item)
        if facts.may_be_paid:
            raise refuse_doubt(facts, item)
        if item is None or item.state != "dead":
            await archive.write(
                db, outbox_id, "FAILED", who=who, error_code=SKIPPED, error_message=reason
            )
        await add_gap(db, facts, who=who, reason=reason)
