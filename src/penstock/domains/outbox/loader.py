"""What the handlers of a claimed batch need: instructions, their earlier calls, rails, controls."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

import msgspec

from penstock.base.money import plain
from penstock.domains.outbox.earlier_calls import LateResult, PaidRow, PastCalls
from penstock.domains.outbox.instruction import Instruction
from penstock.domains.outbox.rails.rail import LoadedRail, Rails
from penstock.domains.outbox.verdict import ControlVerdict, Stop
from penstock.kernel.item import Item
from penstock.postgres.array import to_array
from penstock.postgres.pool import Connection, Queries, Row
from penstock.postgres.statement import statement

LOAD_INSTRUCTIONS = statement(__package__, "load_instructions.sql")

_payload = msgspec.json.Decoder(dict)
_late = msgspec.json.Decoder(tuple[LateResult, ...])
_paid = msgspec.json.Decoder(PaidRow)


class Controls(Protocol):
    """Says of each instruction of a batch whether it may be sent now."""

    async def load(
        self, db: Connection, instructions: Sequence[Instruction]
    ) -> Sequence[ControlVerdict]: ...


class OutboxRef(msgspec.Struct, frozen=True):
    """An item's payload."""

    outbox_id: UUID


class LoadedInstruction(msgspec.Struct, frozen=True, kw_only=True):
    """An instruction with its rail, what stops it, and its earlier calls if it may have had any.

    `past` is None if it was never tried, and is not reported as paid either. `rail` is None if the
    rail has no row, or no adapter in this process.
    """

    instruction: Instruction
    rail: LoadedRail | None
    stop: Stop | None = None
    past: PastCalls | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionLoader:
    """Loads instructions of claimed items, and of held ones."""

    rails: Rails
    control: Controls

    async def preload(
        self, db: Connection, items: Sequence[Item[OutboxRef]]
    ) -> Sequence[LoadedInstruction | OutboxRef]:
        """Return instructions as they are to be sent now; where one is gone, only the reference."""
        found = await self.load(
            db, [item.id for item in items], are_tried=[item.tried for item in items]
        )
        stops = await self._find_stops(db, [each.instruction for each in found.values()])
        return [
            item.payload
            if item.id not in found
            else msgspec.structs.replace(found[item.id], stop=stops[item.id])
            if item.id in stops
            else found[item.id]
            for item in items
        ]

    async def load(
        self, db: Queries, item_ids: Sequence[int], *, are_tried: Sequence[bool]
    ) -> dict[int, LoadedInstruction]:
        """Return the instructions of items by their ids, without what stops them."""
        tried = {id_ for id_, is_tried in zip(item_ids, are_tried, strict=True) if is_tried}
        rows = await db.fetch(LOAD_INSTRUCTIONS, to_array(item_ids), to_array(tried))
        rails = {name: await self.rails.find(name) for name in {row["rail_type"] for row in rows}}
        return {
            row["item_id"]: LoadedInstruction(
                instruction=_to_instruction(row),
                rail=rails[row["rail_type"]],
                past=(
                    _to_past(row) if row["item_id"] in tried or row["paid"] is not None else None
                ),
            )
            for row in rows
        }

    async def _find_stops(
        self, db: Connection, instructions: Sequence[Instruction]
    ) -> dict[int, Stop]:
        verdicts = await self.control.load(db, instructions)
        return {
            each.item_id: verdict
            for each, verdict in zip(instructions, verdicts, strict=True)
            if isinstance(verdict, Stop)
        }


def _to_instruction(row: Row) -> Instruction:
    return Instruction(
        outbox_id=row["outbox_id"],
        item_id=row["item_id"],
        instruction_id=row["instruction_id"],
        participant_id=row["participant_id"],
        sequence_id=row["sequence_id"],
        idempotency_key=row["idempotency_key"],
        rail_type=row["rail_type"],
        payload=_payload.decode(row["payload"]),
        amount=plain(row["amount"]),
        currency=row["currency"],
        created_at=row["created_at"],
    )


def _to_past(row: Row) -> PastCalls:
    return PastCalls(
        first_called_at=row["first_called_at"],
        last_ended_at=row["last_ended_at"],
        last_lost_at=row["last_lost_at"],
        first_doubt_at=row["first_doubt_at"],
        doubts=row["doubts"] or (),
        late=_late.decode(row["late"]) if row["late"] is not None else (),
        paid=_paid.decode(row["paid"]) if row["paid"] is not None else None,
        left_for=row["left_for"],
        was_failed=bool(row["was_failed"]),
        call_count=row["call_count"] or 0,
        referenced_count=row["referenced_count"] or 0,
        refused_references=row["refused_references"] or (),
    )
