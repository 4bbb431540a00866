"""Accept instructions in the caller's transaction, or in one of its own.

The caller's connection is one of asyncpg, psycopg 3 or SQLAlchemy. Producers may call
the SQL function themselves: penstock.send_instruction.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias, cast
from uuid import UUID

import msgspec
from msgspec import Struct

from penstock.base.errors import InvalidInput, MissingExtra
from penstock.base.money import read_money
from penstock.domains.outbox.errors import InstructionConflict
from penstock.domains.outbox.lanes import LANE
from penstock.domains.outbox.rails.destination import DestinationScheme, check_destination
from penstock.domains.outbox.rails.name import check_name
from penstock.domains.outbox.rails.registry import read_scheme_blocking
from penstock.kernel import driver, payload
from penstock.kernel.enqueue import check_key
from penstock.postgres.pool import Pool
from penstock.postgres.statement import statement

SEND_INSTRUCTIONS = statement(__package__, "send_instructions.sql")

PAYLOAD_BYTES_MAX = 65_536  # As the table's CHECK.
BATCH_MAX = 5_000  # Instructions in one statement; more of them only hold locks for longer.
_EXPONENT = re.compile(r"[0-9][eE]([+-]?[0-9]+)")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
PYTHON = "python"  # Who has sent an instruction, if the caller does not say it.


# Returns the scheme of the destinations of a rail; None if there is no such rail.
SchemeOf: TypeAlias = Callable[[str], Awaitable[DestinationScheme | None]]


class NewInstruction(Struct, frozen=True, kw_only=True):
    """A payment to instruct. `payload` has `amount` as a decimal string, `currency`, `destination`.

    In place of `amount` it may have `amount_minor`, an integer number of cents or the like.
    """

    instruction_id: str
    participant_id: str
    idempotency_key: str
    rail_type: str
    payload: Mapping[str, Any]


class AcceptedInstruction(Struct, frozen=True, kw_only=True):
    """The instruction is stored; `is_new` is false if it was known under the same key."""

    outbox_id: UUID
    sequence_id: int
    is_new: bool


class PreparedInstruction(Struct, frozen=True, kw_only=True):
    """An instruction that was checked, with its payload as JSON, and who sends it.

    Without an `outbox_id` the database makes one.
    """

    instruction: NewInstruction
    payload: str
    who: str
    outbox_id: UUID | None = None


AcceptResult: TypeAlias = AcceptedInstruction | InstructionConflict


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbox:
    """Sends instructions from Python: `app.api(Outbox).send(...)`.

    With `connection` the instruction is part of the caller's transaction; without it, it is
    committed when the call returns. Raises InvalidInput with the field. The sequence of a
    participant is locked until the transaction ends: a transaction that sends for several
    participants uses `send_many`, which locks them in one order.
    """

    pool: Pool
    scheme_of: SchemeOf

    async def send(
        self, instruction: NewInstruction, *, connection: object | None = None, who: str = PYTHON
    ) -> AcceptedInstruction:
        """Accept one instruction; raises InstructionConflict, with nothing written.

        The same instruction under the same key returns the first one.
        """
        (answer,) = await self.send_many([instruction], connection=connection, who=who)
        return _accepted_or_raise(answer)

    async def send_many(
        self,
        instructions: Sequence[NewInstruction],
        *,
        connection: object | None = None,
        who: str = PYTHON,
    ) -> list[AcceptResult]:
        """Accept up to BATCH_MAX instructions in one statement, with one answer for each.

        With a conflict the others are accepted. To have all or none, raise it in a transaction.
        """
        _check_count(instructions)
        prepared = [
            await prepare_for_rail(each, who=who, scheme_of=self.scheme_of) for each in instructions
        ]
        if connection is not None:
            return await send_prepared(connection, prepared)
        async with self.pool.acquire() as db, db.transaction():
            return await send_prepared(db, prepared)

    def send_blocking(
        self, instruction: NewInstruction, *, connection: object, who: str = PYTHON
    ) -> AcceptedInstruction:
        """Do the same as `send` on a blocking connection (psycopg 3 or SQLAlchemy)."""
        prepared = prepare(instruction, who=who)
        _check_for_rail(instruction, read_scheme_blocking(connection, instruction.rail_type))
        arguments = _arguments([prepared], at=None)
        row = driver.fetch_row_blocking(connection, SEND_INSTRUCTIONS, arguments, lane=LANE)
        return _accepted_or_raise(_answers(row)[0])


def prepare(
    instruction: NewInstruction, *, who: str, outbox_id: UUID | None = None
) -> PreparedInstruction:
    """Check an instruction; raises InvalidInput with the field. Touches no database."""
    for field in ("instruction_id", "participant_id", "idempotency_key"):
        _check_text(field, getattr(instruction, field))
    check_name("rail_type", instruction.rail_type)
    read_money(instruction.payload)
    if not isinstance(instruction.payload.get("destination"), Mapping):
        raise InvalidInput("payload.destination", "must be an object")
    text = payload.encode(instruction.payload)
    if _stored_bytes(text) > PAYLOAD_BYTES_MAX:
        raise InvalidInput("payload", f"must have at most {PAYLOAD_BYTES_MAX:,} bytes")
    return PreparedInstruction(instruction=instruction, payload=text, who=who, outbox_id=outbox_id)


async def prepare_for_rail(
    instruction: NewInstruction, *, who: str, scheme_of: SchemeOf
) -> PreparedInstruction:
    """Do the same as `prepare`, and check the destination if the rail is known."""
    prepared = prepare(instruction, who=who)
    _check_for_rail(instruction, await scheme_of(instruction.rail_type))
    return prepared


async def send_prepared(
    connection: object, prepared: Sequence[PreparedInstruction], *, at: datetime | None = None
) -> list[AcceptResult]:
    """Accept instructions in one statement, in the transaction of `connection`."""
    if not prepared:
        return []
    _check_count(prepared)
    arguments = _arguments(prepared, at=at)
    row = await driver.fetch_row(connection, SEND_INSTRUCTIONS, arguments, lane=LANE)
    return _answers(row)


def _stored_bytes(text: str) -> int:
    """Return how many bytes the database counts: it writes spaces, and numbers without exponent."""
    size = len(text.encode())
    if size + text.count(",") + text.count(":") <= PAYLOAD_BYTES_MAX and not _EXPONENT.search(text):
        return size
    rest = _STRING.sub("", text)
    zeros = sum(abs(int(each)) for each in _EXPONENT.findall(rest))
    return size + rest.count(",") + rest.count(":") + zeros


def _check_for_rail(instruction: NewInstruction, scheme: DestinationScheme | None) -> None:
    # A producer may lack the packages of the scheme: then a worker checks before the call.
    with suppress(MissingExtra):
        if scheme is not None:
            check_destination(scheme, instruction.payload)


def _check_count(given: Sequence[object]) -> None:
    if len(given) > BATCH_MAX:
        raise InvalidInput("instructions", f"must be at most {BATCH_MAX:,}")


def _check_text(field: str, value: object) -> None:
    if value is None:
        raise InvalidInput(field, "is missing")
    check_key(field, cast("str", value))


def _arguments(prepared: Sequence[PreparedInstruction], *, at: datetime | None) -> tuple[Any, ...]:
    instructions = [each.instruction for each in prepared]
    return (
        [each.instruction_id for each in instructions],
        [each.participant_id for each in instructions],
        [each.idempotency_key for each in instructions],
        [each.rail_type for each in instructions],
        [each.payload for each in prepared],
        at,
        [each.who for each in prepared],
        [None if each.outbox_id is None else str(each.outbox_id) for each in prepared],
    )


def _answers(row: Any) -> list[AcceptResult]:
    return [
        _refused(conflict)
        if conflict is not None
        else AcceptedInstruction(outbox_id=outbox_id, sequence_id=sequence_id, is_new=is_new)
        for outbox_id, sequence_id, is_new, conflict in zip(*row, strict=True)
    ]


def _refused(conflict: str) -> InstructionConflict:
    return InstructionConflict(**msgspec.json.decode(conflict, type=dict[str, str]))


def _accepted_or_raise(answer: AcceptResult) -> AcceptedInstruction:
    if isinstance(answer, InstructionConflict):
        raise answer
    return answer
