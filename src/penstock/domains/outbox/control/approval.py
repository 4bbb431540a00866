"""Four eyes: an instruction above a threshold waits until a second person approves or rejects it.

The person is a key with the scope `approve`: not the one that produced the instruction, and none
that this one has made. The first decision counts.
"""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal
from uuid import UUID

from penstock.base.money import plain
from penstock.domains.outbox.audit.archive import Archive
from penstock.domains.outbox.control.doubt import name_way, refuse_doubt, refuse_paid
from penstock.domains.outbox.control.held_reason import AWAITS_APPROVAL
from penstock.domains.outbox.control.instruction_facts import InstructionFacts, read_facts
from penstock.domains.outbox.control.recheck import apply_decision
from penstock.domains.outbox.ending import UNKNOWN_PREFIX
from penstock.domains.outbox.errors import (
    AlreadyDecided,
    ApprovalDenied,
    DecisionRefused,
)
from penstock.domains.outbox.lanes import LANE
from penstock.kernel.api_keys import is_made_by, key_id_of
from penstock.kernel.audit import audit
from penstock.kernel.errors import Forbidden
from penstock.kernel.inspect import read_item
from penstock.kernel.operate import check_decision
from penstock.postgres.pool import Connection, Queries
from penstock.postgres.statement import statement

ADD_APPROVAL = statement(__package__, "add_approval.sql")
READ_APPROVAL = statement(__package__, "read_approval.sql")
LIST_WAITING = statement(__package__, "list_waiting.sql")

WAITING_FOR = (AWAITS_APPROVAL, UNKNOWN_PREFIX + AWAITS_APPROVAL)

ApprovalDecision = Literal["approved", "rejected"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A decision, the key it was made with, and why."""

    outbox_id: UUID
    decision: ApprovalDecision
    key_id: str
    reason: str
    decided_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingApproval:
    """An instruction that waits for an approval; `reason` says which limit it is over."""

    outbox_id: UUID
    instruction_id: str
    participant_id: str
    sequence_id: int
    rail_type: str
    amount: Decimal
    currency: str
    created_at: datetime
    created_by: str
    held_at: datetime
    reason: str
    item_id: int


async def approve(
    db: Connection, outbox_id: UUID, *, archive: Archive, who: str, reason: str
) -> Approval:
    """Let an instruction leave; `who` is the caller of a key with the scope `approve`.

    A repeat with the same key is harmless. Raises ApprovalDenied, AlreadyDecided, and
    DecisionRefused if it needs no approval or has ended.
    """
    return await _decide(db, outbox_id, "approved", archive=archive, who=who, reason=reason)


async def reject(
    db: Connection, outbox_id: UUID, *, archive: Archive, who: str, reason: str
) -> Approval:
    """End an instruction as failed; like `approve`, and refused for one that may have been paid.

    One that is behind the head of its participant fails in its turn. Raises ResultUnknown too.
    """
    return await _decide(db, outbox_id, "rejected", archive=archive, who=who, reason=reason)


async def list_waiting(db: Queries, *, after: int = 0, limit: int = 100) -> list[PendingApproval]:
    """Return a page of what waits; `after` is the last item_id of the page before."""
    rows = await db.fetch(LIST_WAITING, LANE, WAITING_FOR, after, limit)
    return [PendingApproval(**dict(row.items(), amount=plain(row["amount"]))) for row in rows]


async def _decide(
    db: Connection,
    outbox_id: UUID,
    decision: ApprovalDecision,
    *,
    archive: Archive,
    who: str,
    reason: str,
) -> Approval:
    check_decision(who=who, reason=reason)
    key_id = key_id_of(who)
    if key_id is None:
        raise Forbidden("approve")
    async with db.transaction():
        facts = await read_facts(db, outbox_id)
        await _check_person(db, facts, key_id)
        row = await db.fetchrow(ADD_APPROVAL, outbox_id, decision, key_id, reason)
        if row is None:
            return await _read_same(db, outbox_id, decision, key_id=key_id)
        await _check_awaits(db, facts, decision)
        await audit(
            db, who, f"outbox_instruction.{decision}", subject=str(outbox_id),
            after={"reason": reason},
        )  # fmt: skip
        await apply_decision(db, facts.participant_id, archive=archive, who=who)
    return Approval(**dict(row.items()))


async def _check_person(db: Connection, facts: InstructionFacts, key_id: str) -> None:
    producer_id = key_id_of(facts.created_by)
    if producer_id is not None and await is_made_by(db, key_id, producer_id):
        raise ApprovalDenied(str(facts.outbox_id), key_id)


async def _read_same(
    db: Connection, outbox_id: UUID, decision: ApprovalDecision, *, key_id: str
) -> Approval:
    row = await db.fetchrow(READ_APPROVAL, outbox_id)
    assert row is not None
    known = Approval(**dict(row.items()))
    if (known.decision, known.key_id) != (decision, key_id):
        raise AlreadyDecided(str(outbox_id), known.decision, known.key_id)
    return known


async def _check_awaits(
    db: Connection, facts: InstructionFacts, decision: ApprovalDecision
) -> None:
    """Refuse a decision that would change nothing, or contradict what has happened."""
    item = await read_item(db, facts.item_id)
    if item is None or item.state in {"done", "dead", "cancelled"}:
        raise DecisionRefused(str(facts.outbox_id), "has ended")
    if decision == "rejected" and facts.is_paid:
        raise refuse_paid(facts, item)
    if decision == "rejected" and facts.may_be_paid:
        raise refuse_doubt(facts, item)
    # One that is also in doubt is held as unknown, and the reason goes on with the control's.
    is_waiting = item.state == "held" and AWAITS_APPROVAL in (item.reason or "")
    if not is_waiting and not facts.needs_approval:
        doubt = f"; it may have been paid: {name_way(item)}" if facts.may_be_paid else ""
        raise DecisionRefused(str(facts.outbox_id), f"needs no approval{doubt}")
