"""Gaps: instructions that an operator passed over, so that the next ones could leave."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from penstock.domains.outbox.subject import Subject
from penstock.postgres.pool import Connection, Queries
from penstock.postgres.statement import statement

ADD_GAP = statement(__package__, "add_gap.sql")
LIST_GAPS = statement(__package__, "list_gaps.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A number of a participant that was not sent, who decided so, and why."""

    gap_id: int
    outbox_id: UUID
    instruction_id: str
    participant_id: str
    sequence_id: int
    who: str
    reason: str
    at: datetime


async def add_gap(db: Connection, subject: Subject, *, who: str, reason: str) -> None:
    """Record a gap, in the transaction that passes the instruction over."""
    await db.execute(
        ADD_GAP, subject.outbox_id, subject.participant_id, subject.sequence_id, who, reason
    )


async def list_gaps(
    db: Queries, *, participant_id: str | None = None, after: int = 0, limit: int = 100
) -> list[Gap]:
    """Return a page of gaps, the oldest first; `after` is the last gap_id of the page before."""
    rows = await db.fetch(LIST_GAPS, participant_id, after, limit)
    return [Gap(**dict(row.items())) for row in rows]
