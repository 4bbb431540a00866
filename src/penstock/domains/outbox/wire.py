"""What goes over HTTP about instructions, as types. Input refuses unknown fields."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import Meta, Struct, field

from penstock.contract.paging import Limit
from penstock.domains.outbox import enqueue, inspect
from penstock.domains.outbox.instruction import AttemptState, State

BATCH_MAX = 1_000

Instant = Annotated[datetime, Meta(tz=True)]
Name = Annotated[str, Meta(min_length=1, max_length=255)]
Cursor = Annotated[str, Meta(description="The `next` of the page before.", max_length=20)]

# ------------------------------------------------------------------------------- parameters


class InstructionPath(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which instruction."""

    outbox_id: UUID


class InstructionQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of instructions."""

    participant_id: Name | None = None
    rail_type: Name | None = None
    state: State | None = None
    instruction_id: Name | None = None
    from_: Instant | None = field(name="from", default=None)
    until: Instant | None = None
    after: Cursor | None = None
    limit: Limit = 100


# ----------------------------------------------------------------------------- instructions


class NewInstruction(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A payment to instruct; `payload` has `amount`, `currency` and `destination`."""

    instruction_id: Name
    participant_id: Name
    idempotency_key: Name
    rail_type: Name
    payload: dict[str, Any]


class AcceptedInstruction(Struct, frozen=True, kw_only=True):
    """The instruction is stored, with its number in the sequence of its participant."""

    outbox_id: UUID
    sequence_id: int


class Result(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one instruction of a batch; the hashes are those of a conflict."""

    index: int
    outcome: Literal["accepted", "existing", "conflict", "invalid"]
    outbox_id: str | None = None
    sequence_id: int | None = None
    detail: str | None = None
    stored_hash: str | None = None
    given_hash: str | None = None


class Instruction(Struct, frozen=True, kw_only=True):
    """An instruction and how far it is."""

    outbox_id: UUID
    instruction_id: str
    participant_id: str
    sequence_id: int
    idempotency_key: str
    rail_type: str
    amount: str
    currency: str
    state: State
    attempt_count: int
    next_attempt_at: Instant | None
    last_error: str | None
    rail_reference: str | None
    created_at: Instant
    created_by: str


class InstructionPage(Struct, frozen=True, kw_only=True):
    """Instructions, the newest first; `next` is the `after` of the next page."""

    instructions: list[Instruction]
    next: str | None


class ItemPlace(Struct, frozen=True, kw_only=True):
    """The kernel's item; `state` is null once the lane's retention has removed it."""

    id: int
    state: str | None
    reason: str | None


class Attempt(Struct, frozen=True, kw_only=True):
    """One row of the view `payment_outbox_attempts`."""

    attempt_id: UUID
    attempt_no: int
    state: AttemptState
    claimed_at: Instant
    completed_at: Instant | None
    rail_reference: str | None
    rail_code: str | None
    error_code: str | None
    error_message: str | None
    latency_ms: int | None
    created_at: Instant


class InstructionDetail(Struct, frozen=True, kw_only=True):
    """An instruction, its payload, its item, and what was tried, in order."""

    instruction: Instruction
    payload: dict[str, Any]
    item: ItemPlace
    attempts: list[Attempt]


# ------------------------------------------------------------------------------ conversions


def to_new_instruction(given: NewInstruction) -> enqueue.NewInstruction:
    """Return an instruction as the domain takes it."""
    return enqueue.NewInstruction(
        instruction_id=given.instruction_id,
        participant_id=given.participant_id,
        idempotency_key=given.idempotency_key,
        rail_type=given.rail_type,
        payload=given.payload,
    )


def to_wire_accepted(found: enqueue.AcceptedInstruction) -> AcceptedInstruction:
    """Return an accepted instruction for a response."""
    return AcceptedInstruction(outbox_id=found.outbox_id, sequence_id=found.sequence_id)


def to_wire_instruction(found: inspect.InstructionView) -> Instruction:
    """Return an instruction for a response."""
    return Instruction(
        outbox_id=found.outbox_id,
        instruction_id=found.instruction_id,
        participant_id=found.participant_id,
        sequence_id=found.sequence_id,
        idempotency_key=found.idempotency_key,
        rail_type=found.rail_type,
        amount=str(found.amount),
        currency=found.currency,
        state=found.state,
        attempt_count=found.attempt_count,
        next_attempt_at=found.next_attempt_at,
        last_error=found.last_error,
        rail_reference=found.rail_reference,
        created_at=found.created_at,
        created_by=found.created_by,
    )


def to_wire_detail(story: inspect.Story) -> InstructionDetail:
    """Return an instruction with its story for a response."""
    found = story.instruction
    return InstructionDetail(
        instruction=to_wire_instruction(found),
        payload=story.payload,
        item=ItemPlace(id=found.item_id, state=found.item_state, reason=found.reason),
        attempts=[_to_wire_attempt(each) for each in story.attempts],
    )


def _to_wire_attempt(found: inspect.AttemptView) -> Attempt:
    return Attempt(
        attempt_id=found.attempt_id,
        attempt_no=found.attempt_no,
        state=found.state,
        claimed_at=found.claimed_at,
        completed_at=found.completed_at,
        rail_reference=found.rail_reference,
        rail_code=found.rail_code,
        error_code=found.error_code,
        error_message=found.error_message,
        latency_ms=found.latency_ms,
        created_at=found.created_at,
    )
