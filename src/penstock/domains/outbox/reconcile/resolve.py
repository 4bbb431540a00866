"""End instructions that may have been paid: by the reconciler, by a report of the rail, by hand.

Each decision, its row in the archive and its entry in the audit are one transaction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal
from uuid import UUID

from penstock.base.errors import InvalidInput
from penstock.domains.outbox.audit.archive import Archive
from penstock.domains.outbox.earlier_calls import MaySend, Paid, Refused
from penstock.domains.outbox.ending import RailEnding
from penstock.domains.outbox.errors import DecisionRefused, UnknownInstruction
from penstock.domains.outbox.lanes import OWNER
from penstock.domains.outbox.lookup import (
    await_settlement,
    defer_lookup,
    find_unknown,
    forget_lookup,
)
from penstock.kernel import operate
from penstock.kernel.errors import StateConflict
from penstock.kernel.inspect import read_item
from penstock.kernel.item import ItemId
from penstock.postgres.pool import Connection, Queries
from penstock.postgres.statement import statement

LOCK_UNKNOWN = statement(__package__, "lock_unknown.sql")
FIND_ITEM = statement(__package__, "find_item.sql")
LIST_UNKNOWN = statement(__package__, "list_unknown.sql")
COUNT_UNKNOWN = statement(__package__, "count_unknown.sql")

PAGE_ITEMS = 500  # One transaction of about a second.
LOST_MAX = 1_000  # Lost attempts that are archived before a decision by hand.
REFERENCE_LENGTH_MAX = 255
NOT_PAID: Final = "NOT_PAID"  # The error_code of what a person says was not paid.
TRIED_AGAIN = "was tried again since that attempt; look at the last one before you decide"
PAID = "was paid; it is ended as dispatched by itself, within minutes"
NOT_IN_DOUBT = "it is not in doubt; penstock outbox release tries a failed or held one again"

# `paid`: it left, with the rail's reference. `failed`: it did not leave, and will not. `again`: it
# did not leave, and is sent again.
InstructionResolution = Literal["paid", "failed", "again"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownFilter:
    """Which instructions that may have been paid. `before` is when they were held."""

    rail_type: str | None = None
    participant_id: str | None = None
    before: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a person has found out. `reference` is the rail's, for one that is paid."""

    resolution: InstructionResolution
    who: str
    reason: str
    reference: str | None = None

    def __post_init__(self) -> None:
        operate.check_decision(who=self.who, reason=self.reason)
        if self.reference is None:
            if self.resolution == "paid":
                raise InvalidInput("reference", "is needed for an instruction that is paid")
        elif self.resolution != "paid":
            raise InvalidInput("reference", "is for an instruction that is paid")
        elif not 1 <= len(self.reference) <= REFERENCE_LENGTH_MAX or "\x00" in self.reference:
            raise InvalidInput("reference", f"must have 1 to {REFERENCE_LENGTH_MAX} characters")


@dataclass(frozen=True, slots=True)
class Doubt:
    """An instruction that may have been paid, with the attempt in doubt."""

    item_id: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """One page of decisions; `last_id` continues with the next, None if there is none."""

    changed: int
    unchanged: int
    last_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolver:
    """Ends or releases held instructions that may have been paid, and archives why.

    Each verb needs an open transaction. `attempt` is the one that was looked at; a verb returns
    False, and changes nothing, if the instruction is no longer held after it. `end_failed` and
    `release` also return False for an instruction that is known to be paid by now.
    """

    archive: Archive

    async def end_paid(
        self,
        db: Connection,
        item_id: int,
        paid: Paid,
        *,
        who: str,
        reason: str,
        attempt: int | None = None,
        now: datetime | None = None,
    ) -> bool:
        """End an instruction as dispatched; the next one of its participant follows."""
        found = await self._lock(db, item_id, attempt)
        if found is None:
            return False
        outbox_id, attempt = found
        ending = RailEnding(
            state="DISPATCHED", rail_code=paid.rail_code, rail_reference=paid.rail_reference
        )
        await operate.resolve(
            db, ItemId(item_id), "done", who=who, reason=reason, result=ending, owner=OWNER, now=now
        )
        await self.archive.write(
            db,
            outbox_id,
            "DISPATCHED",
            who=who,
            rail_code=paid.rail_code,
            rail_reference=paid.rail_reference,
            error_message=reason,
            at=now,
            attempt_no=attempt,
            is_pending=paid.is_pending,
        )
        if paid.awaits_settlement:
            await await_settlement(db, [item_id], [attempt], now=now)
        else:
            await forget_lookup(db, item_id)
        return True

    async def end_failed(
        self,
        db: Connection,
        item_id: int,
        refused: Refused,
        *,
        who: str,
        reason: str,
        error_code: Literal["NOT_PAID", "TERMINAL"] = "TERMINAL",
        attempt: int | None = None,
        now: datetime | None = None,
    ) -> bool:
        """End an instruction as failed; as the dead head it blocks its participant."""
        found = await self._lock(db, item_id, attempt, refuses_paid=True)
        if found is None:
            return False
        outbox_id, attempt = found
        await operate.resolve(
            db, ItemId(item_id), "dead", who=who, reason=reason, owner=OWNER, now=now
        )
        await self.archive.write(
            db,
            outbox_id,
            "FAILED",
            who=who,
            rail_code=refused.rail_code,
            rail_reference=refused.rail_reference,
            error_code=error_code,
            error_message=refused.message or reason,
            at=now,
            attempt_no=attempt,
        )
        await forget_lookup(db, item_id)
        return True

    async def release(
        self,
        db: Connection,
        item_id: int,
        cleared: MaySend | None,
        *,
        who: str,
        reason: str,
        attempt: int | None = None,
        now: datetime | None = None,
    ) -> bool:
        """Have an instruction tried again; the handler asks the rail before it sends.

        `cleared` is what allows it; None if a person says that it was not paid.
        """
        found = await self._lock(db, item_id, attempt, refuses_paid=True)
        if found is None:
            return False
        outbox_id, attempt = found
        await operate.release(db, ItemId(item_id), who=who, reason=reason, owner=OWNER, now=now)
        await self.archive.write(
            db,
            outbox_id,
            "ZOMBIE_REQUEUE",
            who=who,
            rail_code=None if cleared is None else cleared.rail_code,
            rail_reference=None if cleared is None else cleared.rail_reference,
            error_code=NOT_PAID if cleared is None else cleared.clearance,
            error_message=reason,
            at=now,
            attempt_no=attempt,
        )
        await defer_lookup(db, item_id, now=now)
        return True

    async def decide(
        self,
        db: Connection,
        item_id: int,
        decision: Decision,
        *,
        attempt: int | None = None,
        now: datetime | None = None,
    ) -> bool:
        """Apply what a person has found out; False if the instruction is not in doubt."""
        who, reason = decision.who, decision.reason
        match decision.resolution:
            case "paid":
                # Whether the rail settles later only a process knows that has its adapter.
                paid = Paid(
                    rail_code=None, rail_reference=decision.reference, awaits_settlement=True
                )
                return await self.end_paid(
                    db, item_id, paid, who=who, reason=reason, attempt=attempt, now=now
                )
            case "failed":
                refused = Refused(rail_code=None, rail_reference=None, message=reason)
                return await self.end_failed(
                    db,
                    item_id,
                    refused,
                    who=who,
                    reason=reason,
                    error_code=NOT_PAID,
                    attempt=attempt,
                    now=now,
                )
            case "again":
                return await self.release(
                    db, item_id, None, who=who, reason=reason, attempt=attempt, now=now
                )

    async def resolve(
        self,
        db: Connection,
        outbox_id: UUID,
        decision: Decision,
        *,
        attempt: int | None = None,
        now: datetime | None = None,
    ) -> None:
        """Decide about one instruction by hand.

        `attempt` is the one that the person looked at; None is the last one. Raises
        UnknownInstruction, DecisionRefused for one that is known to be paid or was tried again
        since, InvalidInput for an attempt that it has not had, and StateConflict for one that is
        not in doubt.
        """
        async with db.transaction():
            await self._archive_lost(db, now=now)
            item_id = await db.fetchval(FIND_ITEM, outbox_id)
            if item_id is None:
                raise UnknownInstruction(str(outbox_id))
            if not await self.decide(db, item_id, decision, attempt=attempt, now=now):
                if await self._lock(db, item_id, attempt) is not None:
                    raise DecisionRefused(str(outbox_id), PAID)
                last = await self._lock(db, item_id, None)
                if last is not None and attempt is not None and attempt > last[1]:
                    raise InvalidInput("attempt", f"there is none yet; the last one is {last[1]}")
                if last is not None:
                    raise DecisionRefused(str(outbox_id), TRIED_AGAIN)
                item = await read_item(db, ItemId(item_id))
                state = "gone" if item is None else item.state
                raise StateConflict(outbox_id, state, "resolved", NOT_IN_DOUBT)

    async def resolve_listed(
        self,
        db: Connection,
        doubts: Sequence[Doubt],
        decision: Decision,
        *,
        now: datetime | None = None,
    ) -> Resolved:
        """Decide about the instructions that a person has seen, page by page.

        Others that came to doubt since they were listed are left alone, also another attempt of
        one of these. Each page is a transaction of its own.
        """
        check_for_many(decision.resolution)
        changed = 0
        for start in range(0, len(doubts), PAGE_ITEMS):
            changed += await self._decide_all(
                db, doubts[start : start + PAGE_ITEMS], decision, now=now
            )
        return Resolved(changed=changed, unchanged=len(doubts) - changed, last_id=None)

    async def resolve_page(
        self,
        db: Connection,
        only: UnknownFilter,
        decision: Decision,
        *,
        after: int = 0,
        limit: int = PAGE_ITEMS,
        now: datetime | None = None,
    ) -> Resolved:
        """Decide about the next matching instructions, in one transaction.

        Raises InvalidInput without `before`: the caller has to say up to when somebody has looked.
        """
        check_for_many(decision.resolution)
        if only.before is None:
            raise InvalidInput("before", "is needed: the instant that the dry run returned")
        doubts = await list_unknown(db, only, after=after, limit=limit)
        changed = await self._decide_all(db, doubts, decision, now=now)
        return Resolved(
            changed=changed,
            unchanged=len(doubts) - changed,
            last_id=doubts[-1].item_id if len(doubts) == limit else None,
        )

    async def _decide_all(
        self, db: Connection, doubts: Sequence[Doubt], decision: Decision, *, now: datetime | None
    ) -> int:
        """Decide about instructions in one transaction; return how many were changed."""
        async with db.transaction():
            await self._archive_lost(db, now=now)
            return sum(
                [
                    await self.decide(db, each.item_id, decision, attempt=each.attempt, now=now)
                    for each in doubts
                ]
            )

    async def _archive_lost(self, db: Connection, *, now: datetime | None) -> None:
        """Archive what dead workers left before a person's decision about it."""
        await self.archive.publish(db, await find_unknown(db, limit=LOST_MAX, now=now))

    async def _lock(
        self, db: Connection, item_id: int, attempt: int | None, *, refuses_paid: bool = False
    ) -> tuple[UUID, int] | None:
        """Lock a held instruction that is in doubt after this attempt; return what it is."""
        row = await db.fetchrow(LOCK_UNKNOWN, item_id)
        if row is None or attempt not in {None, row["attempt"]}:
            return None
        if refuses_paid and row["is_paid"]:
            return None
        return row["outbox_id"], row["attempt"]


async def list_unknown(
    db: Queries, only: UnknownFilter, *, after: int = 0, limit: int | None = None
) -> list[Doubt]:
    """Return the instructions in doubt that match now, in the order of their items."""
    rows = await db.fetch(LIST_UNKNOWN, *_conditions(only), after, limit)
    return [Doubt(row["id"], row["attempt"]) for row in rows]


async def count_unknown(db: Queries, only: UnknownFilter) -> int:
    """Return how many instructions that may have been paid match now."""
    return int(await db.fetchval(COUNT_UNKNOWN, *_conditions(only)))


def check_for_many(resolution: InstructionResolution) -> None:
    """Raise InvalidInput for a resolution that only one instruction can have."""
    if resolution == "paid":
        raise InvalidInput("resolution", "each paid instruction has a reference of its own")


def _conditions(only: UnknownFilter) -> tuple[object, ...]:
    return only.rail_type, only.participant_id, only.before
