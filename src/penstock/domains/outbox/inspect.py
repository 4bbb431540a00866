"""What became of instructions: their state, their item, what was tried. Reads only."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from penstock.base.errors import InvalidInput
from penstock.base.money import plain
from penstock.base.paging import cut_page
from penstock.domains.outbox.errors import UnknownInstruction
from penstock.domains.outbox.instruction import AttemptState, State
from penstock.kernel.enqueue import check_instant
from penstock.kernel.inspect import ID_MAX
from penstock.postgres.pool import Queries, Row
from penstock.postgres.statement import statement

READ_INSTRUCTION = statement(__package__, "read_instruction.sql")
LIST_INSTRUCTIONS = statement(__package__, "list_instructions.sql")
LIST_OF_PARTICIPANT = statement(__package__, "list_of_participant.sql")
LIST_OF_INSTRUCTION_ID = statement(__package__, "list_of_instruction_id.sql")
LIST_ATTEMPTS = statement(__package__, "list_attempts.sql")

LOOKED_AT_MAX = 1_000  # Instructions that one page with a filter looks at: states have no index.


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionFilter:
    """Which instructions; `from_at` and `until_at` are compared with the instant of acceptance."""

    participant_id: str | None = None
    rail_type: str | None = None
    state: State | None = None
    instruction_id: str | None = None
    from_at: datetime | None = None
    until_at: datetime | None = None

    @property
    def is_selective(self) -> bool:
        """Whether a row that was looked at may be left out."""
        others = (self.rail_type, self.state, self.from_at, self.until_at)
        both = self.participant_id is not None and self.instruction_id is not None
        return both or any(each is not None for each in others)


ALL = InstructionFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionView:
    """An instruction and how far it is.

    `item_state` and `reason` are the kernel's words, None once retention has removed the item.
    """

    item_id: int
    outbox_id: UUID
    instruction_id: str
    participant_id: str
    sequence_id: int
    idempotency_key: str
    rail_type: str
    amount: Decimal
    currency: str
    created_at: datetime
    created_by: str
    state: State
    item_state: str | None
    reason: str | None
    next_attempt_at: datetime | None
    attempt_count: int
    last_error: str | None
    rail_reference: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    """One row of the view payment_outbox_attempts."""

    attempt_id: UUID
    attempt_no: int
    state: AttemptState
    claimed_at: datetime
    completed_at: datetime | None
    rail_reference: str | None
    rail_code: str | None
    error_code: str | None
    error_message: str | None
    latency_ms: int | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """An instruction, its payload, and what was tried, in order."""

    instruction: InstructionView
    payload: dict[str, Any]
    attempts: list[AttemptView]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionPage:
    """Instructions, the newest first; `next` is the `before` of the next page."""

    instructions: list[InstructionView]
    next: int | None


async def read_story(db: Queries, outbox_id: UUID) -> Story:
    """Return one instruction with everything that happened to it, or raise UnknownInstruction."""
    row = await db.fetchrow(READ_INSTRUCTION, outbox_id)
    if row is None:
        raise UnknownInstruction(str(outbox_id))
    fields = dict(row.items(), amount=plain(row["amount"]))
    payload = msgspec.json.decode(fields.pop("payload"), type=dict[str, Any])
    attempts = await db.fetch(LIST_ATTEMPTS, outbox_id)
    return Story(
        instruction=InstructionView(**fields),
        payload=payload,
        attempts=[AttemptView(**dict(each.items())) for each in attempts],
    )


async def list_instructions(
    db: Queries, *, only: InstructionFilter = ALL, before: int | None = None, limit: int = 100
) -> InstructionPage:
    """Return a page of instructions; `before` continues it.

    A filter looks at LOOKED_AT_MAX instructions, so that a page may have fewer than `limit`, or
    none, and still a `next`.
    """
    check_instant("from", only.from_at)
    check_instant("until", only.until_at)
    looked_max = max(limit + 1, LOOKED_AT_MAX) if only.is_selective else limit + 1
    rows = await _look(db, only, before=ID_MAX if before is None else before, most=looked_max)
    found = [_to_view(row) for row in rows if _matches(row, only)]
    looked_until = None if len(rows) < looked_max else rows[-1]["item_id"]
    page, following = cut_page(found, limit, lambda each: each.item_id, looked_until=looked_until)
    return InstructionPage(instructions=page, next=following)


async def _look(db: Queries, only: InstructionFilter, *, before: int, most: int) -> list[Row]:
    for field in ("participant_id", "instruction_id", "rail_type"):
        if "\x00" in (getattr(only, field) or ""):
            raise InvalidInput(field, "holds a NUL character")
    if only.instruction_id is not None:
        return await db.fetch(LIST_OF_INSTRUCTION_ID, before, most, only.instruction_id)
    if only.participant_id is not None:
        return await db.fetch(LIST_OF_PARTICIPANT, before, most, only.participant_id)
    return await db.fetch(LIST_INSTRUCTIONS, before, most)


def _matches(row: Row, only: InstructionFilter) -> bool:
    return (
        only.participant_id in (None, row["participant_id"])
        and only.rail_type in (None, row["rail_type"])
        and only.state in (None, row["state"])
        and (only.from_at is None or row["created_at"] >= only.from_at)
        and (only.until_at is None or row["created_at"] < only.until_at)
    )


def _to_view(row: Row) -> InstructionView:
    return InstructionView(**dict(row.items(), amount=plain(row["amount"])))
