"""Lookups: which instructions a rail has to be asked about, and when. Rows of one small table."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from penstock.base.money import plain
from penstock.domains.outbox.event import OutboxEvent
from penstock.postgres.pool import Connection, Queries
from penstock.postgres.statement import statement

FIND_UNKNOWN = statement(__package__, "find_unknown.sql")
CLAIM_LOOKUPS = statement(__package__, "claim_lookups.sql")
MOVE_LOOKUP = statement(__package__, "move_lookup.sql")
FORGET_LOOKUP = statement(__package__, "forget_lookup.sql")
DEFER_LOOKUP = statement(__package__, "defer_lookup.sql")
AWAIT_SETTLEMENT = statement(__package__, "await_settlement.sql")
HASTEN_PAID_LATE = statement(__package__, "hasten_paid_late.sql")

# An instruction has one lookup at most. Each change names the attempt and the purpose that it was
# decided for, so that a process that stalled changes nothing that another has made meanwhile.
#
# | from | by | to |
# | --- | --- | --- |
# | none | an attempt ends as unknown, or is lost: `find_unknown` | `unknown`, due at once |
# | none | an attempt ends as accepted: `await_settlement` | `settlement`, due after FIRST_POLL |
# | `unknown` | no answer, or a control stops it: `move_lookup` | `unknown`, due later |
# | `unknown` | only a person can decide: `move_lookup` | `unknown`, left |
# | `unknown`, left | a worker says late that it has paid: `hasten_paid_late` | due at once |
# | `unknown` | the rail has accepted it: `await_settlement` | `settlement`, due after FIRST_POLL |
# | `unknown` | a person says it is paid: `await_settlement` | `settlement`, due after FIRST_POLL |
# | `unknown` | paid or failed: `forget_lookup` | none |
# | `unknown` | released: `defer_lookup` | `unknown`, deferred |
# | `unknown`, deferred | in doubt again: `find_unknown` | `unknown`, due later each time |
# | `unknown`, deferred | not in doubt for an hour: `drop_lookup` | none |
# | `settlement` | the rail settles at once, and a person said it: `drop_lookup` | none |
# | `settlement` | not decided yet: `move_lookup` | `settlement`, due later |
# | `settlement` | not decided after 60 days: `move_lookup` | `settlement`, left |
# | `settlement` | settled, returned: `forget_lookup` | none |
Purpose = Literal["unknown", "settlement"]

# An instruction in doubt is asked about at once, then less and less often.
WAIT_FIRST = timedelta(seconds=5)
WAIT_MAX = timedelta(minutes=5)
# A released instruction that is not in doubt again by then is forgotten.
DEFER_FOR = timedelta(hours=1)
# How soon a rail is asked for the first time whether it settled what it accepted.
FIRST_POLL = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """One instruction to ask about. `held_attempt` is None if it is not held now."""

    item_id: int
    attempt: int
    purpose: Purpose
    looks: int
    since: datetime
    left_at: datetime | None
    held_attempt: int | None


async def find_unknown(
    db: Connection, *, limit: int, now: datetime | None = None
) -> list[OutboxEvent]:
    """Note held instructions that may have been paid; return events about those that were lost.

    What a dead worker left is archived as UNKNOWN here; a worker archives the others itself.
    """
    rows = await db.fetch(FIND_UNKNOWN, limit, now, WAIT_FIRST, WAIT_MAX)
    return [
        OutboxEvent(
            type="outbox.unknown",
            outbox_id=row["outbox_id"],
            instruction_id=row["instruction_id"],
            participant_id=row["participant_id"],
            sequence_id=row["sequence_id"],
            rail_type=row["rail_type"],
            amount=plain(row["amount"]),
            currency=row["currency"],
            error_code="LOST",
        )
        for row in rows
        if row["outcome"] == "lost"
    ]


async def hasten_paid_late(db: Queries, *, now: datetime | None = None) -> None:
    """Look at once at what was left to a person and a worker has reported as paid since."""
    await db.execute(HASTEN_PAID_LATE, now)


async def claim_lookups(
    db: Queries, *, per_rail: int, claim: timedelta, now: datetime | None = None
) -> list[Lookup]:
    """Take lookups that are due; another process takes them after `claim`, if this one dies."""
    rows = await db.fetch(CLAIM_LOOKUPS, per_rail, claim, now)
    return [Lookup(**dict(row.items())) for row in rows]


async def move_lookup(
    db: Queries,
    lookup: Lookup,
    due_at: datetime,
    *,
    is_left: bool = False,
    now: datetime | None = None,
) -> None:
    """Ask again at `due_at`; `is_left`: meanwhile a person has to decide."""
    await db.execute(
        MOVE_LOOKUP, lookup.item_id, lookup.attempt, lookup.purpose, due_at, is_left, now
    )


async def defer_lookup(db: Queries, item_id: int, *, now: datetime | None = None) -> None:
    """Ask nothing about a released instruction for DEFER_FOR, and count the release."""
    await db.execute(DEFER_LOOKUP, item_id, DEFER_FOR, now)


async def forget_lookup(db: Queries, item_id: int) -> None:
    """Ask no more about an instruction that is decided, in the transaction that decides."""
    await db.execute(FORGET_LOOKUP, item_id, None, None)


async def drop_lookup(db: Queries, lookup: Lookup) -> None:
    """Remove a lookup that is out of date; one that another process has made meanwhile stays."""
    await db.execute(FORGET_LOOKUP, lookup.item_id, lookup.attempt, lookup.purpose)


async def await_settlement(
    db: Queries, item_ids: Sequence[int], attempts: Sequence[int], *, now: datetime | None = None
) -> None:
    """Have the rail asked later whether it settled or returned dispatched instructions."""
    await db.execute(AWAIT_SETTLEMENT, item_ids, attempts, FIRST_POLL, now)
