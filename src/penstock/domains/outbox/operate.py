"""Operators' verbs for instructions: hold, release and skip. Each is audited with a reason."""

from datetime import datetime
from uuid import UUID

from penstock.domains.outbox.archive import Archive
from penstock.domains.outbox.errors import DecisionRefused, ResultUnknown
from penstock.domains.outbox.gap import add_gap
from penstock.domains.outbox.lanes import OWNER
from penstock.domains.outbox.subject import Subject, read_subject
from penstock.kernel import operate
from penstock.kernel.inspect import read_item
from penstock.postgres.pool import Connection
from penstock.postgres.statement import statement

LOCK_INSTRUCTION = statement(__package__, "lock_instruction.sql")

RELEASED = "RELEASED"  # The error_code of a failed instruction that is tried again.
SKIPPED = "SKIPPED"
HELD_BY_OPERATOR = "held: "


async def hold(
    db: Connection, outbox_id: UUID, *, who: str, reason: str, now: datetime | None = None
) -> None:
    """Keep the head of a participant from being sent; raises StateConflict for any other."""
    subject = await read_subject(db, outbox_id)
    # Apart from the reasons for which the domain holds: only an operator releases it.
    held_for = HELD_BY_OPERATOR + reason
    await operate.hold(db, subject.item_id, who=who, reason=held_for, owner=OWNER, now=now)


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
    failed instruction that was skipped, or sent again under another key.
    """
    operate.check_decision(who=who, reason=reason)
    async with db.transaction():
        subject = await read_subject(db, outbox_id)
        item = await read_item(db, subject.item_id)
        if item is not None and item.state == "dead":
            await _release_failed(db, subject, archive=archive, who=who, reason=reason, now=now)
            return
        await operate.release(db, subject.item_id, who=who, reason=reason, owner=OWNER, now=now)


async def _release_failed(
    db: Connection,
    subject: Subject,
    *,
    archive: Archive,
    who: str,
    reason: str,
    now: datetime | None,
) -> None:
    """Try a failed instruction again in its place.

    Its producer may send it again under another key once it has failed. The lock and the row in the
    archive, which is not FAILED, keep both from happening.
    """
    await db.fetch(LOCK_INSTRUCTION, subject.instruction_id)
    # Read after the lock was granted: a producer may have been first.
    known = await db.fetch(LOCK_INSTRUCTION, subject.instruction_id)
    if any(row["outbox_id"] != subject.outbox_id for row in known):
        raise DecisionRefused(str(subject.outbox_id), "was sent again under another key")
    if subject.is_skipped:
        raise DecisionRefused(str(subject.outbox_id), "was skipped: later ones have left")
    await archive.write(
        db, subject.outbox_id, "ZOMBIE_REQUEUE", who=who, error_code=RELEASED, error_message=reason
    )
    await operate.retry(db, subject.item_id, who=who, reason=reason, owner=OWNER, now=now)


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

    Raises ResultUnknown for one that may have been paid, and StateConflict for one in flight, one
    that has ended, and one that is not the head.
    """
    async with db.transaction():
        before = await read_subject(db, outbox_id)
        item = await read_item(db, before.item_id)
        await operate.skip(db, before.item_id, who=who, reason=reason, owner=OWNER, now=now)
        # Read after the item was taken from the workers: one may have sent it a moment ago.
        subject = await read_subject(db, outbox_id)
        if subject.may_be_paid:
            raise ResultUnknown(str(outbox_id))
        if item is None or item.state != "dead":
            await archive.write(
                db, outbox_id, "FAILED", who=who, error_code=SKIPPED, error_message=reason
            )
        await add_gap(db, subject, who=who, reason=reason)
