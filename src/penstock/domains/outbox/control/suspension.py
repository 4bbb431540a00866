"""Suspended participants: none of their instructions leaves until an operator resumes them.

A failed instruction suspends its participant where the failure policy says so; otherwise it blocks
it, until an operator releases or skips the instruction.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal
from uuid import UUID

from penstock.domains.outbox.audit.archive import Archive
from penstock.domains.outbox.control.control_scope import ControlScope, check_known, check_scope
from penstock.domains.outbox.control.instruction_facts import lock_facts
from penstock.domains.outbox.control.operate import release, skip
from penstock.domains.outbox.control.recheck import apply_decision
from penstock.domains.outbox.errors import UnknownSuspension
from penstock.kernel.audit import audit
from penstock.kernel.errors import StateConflict
from penstock.kernel.inspect import read_item
from penstock.kernel.operate import check_decision
from penstock.postgres.pool import Connection, Queries
from penstock.postgres.statement import statement

SUSPEND = statement(__package__, "suspend.sql")
END_SUSPENSION = statement(__package__, "end_suspension.sql")
LIST_SUSPENSIONS = statement(__package__, "list_suspensions.sql")
PUT_FAILURE_POLICY = statement(__package__, "put_failure_policy.sql")
LIST_FAILURE_POLICIES = statement(__package__, "list_failure_policies.sql")

Policy = Literal["block", "suspend"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspension:
    """`outbox_id` is the failed instruction that suspended the participant, if one did."""

    participant_id: str
    reason: str
    who: str
    at: datetime
    outbox_id: UUID | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePolicy:
    """What a failed instruction does to its participant: of all, of a rail, or of one."""

    scope: ControlScope
    name: str | None
    policy: Policy


async def suspend(db: Connection, participant_id: str, *, who: str, reason: str) -> Suspension:
    """Hold back what the participant sends from now on; a repeat replaces the reason."""
    check_decision(who=who, reason=reason)
    name = check_scope("participant", participant_id)
    async with db.transaction():
        row = await db.fetchrow(SUSPEND, name, reason, who)
        assert row is not None
        await audit(db, who, "outbox_participant.suspended", subject=name, after={"reason": reason})
    return Suspension(**dict(row.items()))


async def resume(
    db: Connection, participant_id: str, *, archive: Archive, who: str, reason: str
) -> None:
    """Let the participant's instructions leave again in their order; raises UnknownSuspension.

    A failed instruction that suspended it is passed over, and the gap is recorded; if it was paid
    after it had failed, it ends as dispatched instead.
    """
    check_decision(who=who, reason=reason)
    async with db.transaction():
        row = await db.fetchrow(END_SUSPENSION, participant_id)
        if row is None:
            raise UnknownSuspension(participant_id)
        await audit(
            db, who, "outbox_participant.resumed", subject=participant_id,
            before={"reason": row["reason"]}, after={"reason": reason},
        )  # fmt: skip
        if row["outbox_id"] is not None:
            await _pass_over(db, row["outbox_id"], archive=archive, who=who, reason=reason)
        await apply_decision(db, participant_id, archive=archive, who=who)


async def _pass_over(
    db: Connection, outbox_id: UUID, *, archive: Archive, who: str, reason: str
) -> None:
    """Pass a failed instruction over; one that an operator has released since is left to leave."""
    facts = await lock_facts(db, outbox_id)
    item = await read_item(db, facts.item_id)
    if item is None or item.state != "dead" or facts.is_skipped:
        return
    decide = release if facts.is_paid else skip
    with suppress(StateConflict):  # It blocks nobody any more.
        await decide(db, outbox_id, archive=archive, who=who, reason=reason)


async def list_suspensions(db: Queries, *, after: str = "", limit: int = 100) -> list[Suspension]:
    """Return a page by participant; `after` is the last participant of the page before."""
    rows = await db.fetch(LIST_SUSPENSIONS, after, limit)
    return [Suspension(**dict(row.items())) for row in rows]


async def put_failure_policy(db: Connection, given: FailurePolicy, *, who: str) -> FailurePolicy:
    """Set what failed instructions do from now on; that of a participant or rail comes first."""
    name = check_scope(given.scope, given.name)
    made = replace(given, name=name)
    await check_known(db, given.scope, name)
    async with db.transaction():
        await db.execute(PUT_FAILURE_POLICY, made.scope, made.name, made.policy)
        await audit(
            db, who, "outbox_failure_policy.changed", subject=f"{made.scope} {made.name}",
            after={"policy": made.policy},
        )  # fmt: skip
    return made


async def list_failure_policies(db: Queries) -> list[FailurePolicy]:
    """Return what was set; where nothing is set, a failed instruction blocks."""
    return [FailurePolicy(**dict(row.items())) for row in await db.fetch(LIST_FAILURE_POLICIES)]
