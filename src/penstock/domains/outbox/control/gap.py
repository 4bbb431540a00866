"""Gaps: numbers that an operator passed over, or that a producer took without an instruction."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from penstock.contract import Finding, Resources
from penstock.domains.outbox.control.instruction_facts import InstructionFacts
from penstock.postgres.pool import Connection, Queries
from penstock.postgres.statement import statement

ADD_GAP = statement(__package__, "add_gap.sql")
LIST_GAPS = statement(__package__, "list_gaps.sql")
COUNT_UNUSED_NUMBERS = statement(__package__, "count_unused_numbers.sql")

UNUSED_MAX = 1_000  # Numbers that `penstock doctor` counts.
# A hole stays for ever, so doctor warns only of what somebody may still do something about.
RECENT = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A number of a participant that was not sent, who decided so or took it, and why.

    Without an `outbox_id` no instruction has the number.
    """

    gap_id: int
    outbox_id: UUID | None
    instruction_id: str | None
    participant_id: str
    sequence_id: int
    who: str
    reason: str
    at: datetime


async def add_gap(db: Connection, facts: InstructionFacts, *, who: str, reason: str) -> None:
    """Record a gap, in the transaction that passes the instruction over."""
    await db.execute(ADD_GAP, facts.outbox_id, facts.participant_id, facts.sequence_id, who, reason)


async def list_gaps(
    db: Queries, *, participant_id: str | None = None, after: int = 0, limit: int = 100
) -> list[Gap]:
    """Return a page of gaps, the oldest first; `after` is the last gap_id of the page before."""
    rows = await db.fetch(LIST_GAPS, participant_id, after, limit)
    return [Gap(**dict(row.items())) for row in rows]


async def check_numbers(resources: Resources) -> Finding:
    """Count numbers that were taken and not used: for `penstock doctor`."""
    row = await resources.pool.fetchrow(COUNT_UNUSED_NUMBERS, UNUSED_MAX, RECENT)
    assert row is not None
    if not row["numbers"]:
        return Finding("ok", "outbox numbers", "no unused numbers")
    detail = (
        f"{row['numbers']} were taken with bump_participant_outbox_seq and not used, the last one "
        f"is {row['last']}; penstock outbox gaps lists them"
    )
    return Finding("warn" if row["is_recent"] else "ok", "outbox numbers", detail)
