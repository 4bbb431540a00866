"""Instructions over REST: send one or many, show one with its story, list them."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from penstock.base.errors import InvalidInput
from penstock.base.unique_keys import check_unique_keys
from penstock.contract.http import Call, Content, Endpoint, NoParameters, Reply, Stream, endpoint
from penstock.contract.paging import read_id
from penstock.domains.outbox import inspect, wire
from penstock.domains.outbox.batcher import InstructionBatcher
from penstock.domains.outbox.enqueue import (
    AcceptedInstruction,
    PreparedInstruction,
    SchemeOf,
    prepare_for_rail,
)
from penstock.domains.outbox.errors import InstructionConflict

INSTRUCTION_BYTES_MAX = 128 * 1024  # A payload of 64 KiB, with escapes and the other fields.
BATCH_BYTES_MAX = 16 * 1024 * 1024
JSON = "application/json"
REPEATED = {"Idempotency-Hit": "true"}  # The response shows the instruction that existed before.

_array = msgspec.json.Decoder(list[msgspec.Raw])
_instruction = msgspec.json.Decoder(wire.NewInstruction)


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """The handlers that accept instructions."""

    batcher: InstructionBatcher
    scheme_of: SchemeOf

    async def send(
        self, call: Call[NoParameters, wire.NewInstruction]
    ) -> Reply[wire.AcceptedInstruction]:
        """Accept an instruction."""
        prepared = await self._prepare(call.body, who=call.who)
        accepted = await self.batcher.accept(prepared)
        if accepted.is_new:
            return Reply(wire.to_wire_accepted(accepted), status=201)
        return Reply(wire.to_wire_accepted(accepted), status=200, headers=REPEATED)

    async def send_batch(self, call: Call[NoParameters, Stream]) -> Content:
        """Accept many instructions, each for itself."""
        entries = await _entries(call.body)
        prepared: dict[int, PreparedInstruction] = {}
        results: dict[int, wire.Result] = {}
        for index, entry in enumerate(entries):
            try:
                prepared[index] = await self._prepare(_read(entry), who=call.who)
            except InvalidInput as refused:
                results[index] = wire.Result(index=index, outcome="invalid", detail=str(refused))
        answers = await self.batcher.accept_many(list(prepared.values()))
        for index, answer in zip(prepared, answers, strict=True):
            results[index] = _result(index, answer)
        answer = msgspec.json.encode([results[index] for index in range(len(entries))])
        return Content(body=answer, media_type=JSON)

    async def _prepare(self, given: wire.NewInstruction, *, who: str) -> PreparedInstruction:
        new = wire.to_new_instruction(given)
        return await prepare_for_rail(new, who=who, scheme_of=self.scheme_of)


async def list_instructions(call: Call[wire.InstructionQuery, None]) -> wire.InstructionPage:
    """Show a page of instructions."""
    query = call.parameters
    only = inspect.InstructionFilter(
        participant_id=query.participant_id,
        rail_type=query.rail_type,
        state=query.state,
        instruction_id=query.instruction_id,
        from_at=query.from_,
        until_at=query.until,
    )
    async with call.connection() as db:
        page = await inspect.list_instructions(
            db, only=only, before=read_id(query.after), limit=query.limit
        )
    return wire.InstructionPage(
        instructions=[wire.to_wire_instruction(each) for each in page.instructions],
        next=None if page.next is None else str(page.next),
    )


async def show_instruction(call: Call[wire.InstructionPath, None]) -> wire.InstructionDetail:
    """Show an instruction with its story."""
    async with call.connection() as db:
        return wire.to_wire_detail(await inspect.read_story(db, call.parameters.outbox_id))


def endpoints(api: Api) -> Sequence[Endpoint]:
    """Return the endpoints of instructions."""
    return (
        endpoint(
            "POST", "/outbox/instructions", api.send, scope="produce", statuses=(201, 200),
            summary="Accept a payment instruction; a repeat is answered with 200, Idempotency-Hit",
            body_bytes_max=INSTRUCTION_BYTES_MAX,
            keys_are_unique=True,
        ),
        endpoint(
            "POST", "/outbox/instructions/batch", api.send_batch, scope="produce",
            summary="Accept 1 to 1,000 instructions, with one result for each",
            streams={JSON: (list[wire.NewInstruction], list[wire.Result])},
            body_bytes_max=BATCH_BYTES_MAX,
        ),
        endpoint(
            "GET", "/outbox/instructions", list_instructions, scope="read",
            summary="List instructions by participant, rail, state, id and time, the newest first",
        ),
        endpoint(
            "GET", "/outbox/instructions/{outbox_id}", show_instruction, scope="read",
            summary="Show an instruction, its item, and what was tried",
        ),
    )  # fmt: skip


async def _entries(stream: Stream) -> Sequence[msgspec.Raw]:
    body = bytearray()
    async for chunk in stream.chunks:
        body += chunk
    try:
        entries = _array.decode(body)
    except msgspec.DecodeError as malformed:
        raise InvalidInput("body", f"is not a JSON array: {malformed}") from malformed
    except RecursionError as deep:
        raise InvalidInput("body", "is nested too deeply") from deep
    if not 1 <= len(entries) <= wire.BATCH_MAX:
        raise InvalidInput("body", f"must have 1 to {wire.BATCH_MAX:,} instructions")
    return entries


def _read(entry: msgspec.Raw) -> wire.NewInstruction:
    try:
        decoded = _instruction.decode(entry)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as malformed:
        raise InvalidInput("instruction", str(malformed)) from malformed
    check_unique_keys(bytes(entry))
    return decoded


def _result(index: int, answer: AcceptedInstruction | Exception) -> wire.Result:
    match answer:
        case AcceptedInstruction():
            return wire.Result(
                index=index,
                outcome="accepted" if answer.is_new else "existing",
                outbox_id=str(answer.outbox_id),
                sequence_id=answer.sequence_id,
            )
        case InstructionConflict():
            return wire.Result(
                index=index,
                outcome="conflict",
                outbox_id=answer.outbox_id,
                detail=str(answer),
                stored_hash=answer.stored_hash,
                given_hash=answer.given_hash,
            )
        case InvalidInput():
            return wire.Result(index=index, outcome="invalid", detail=str(answer))
        case _:
            raise answer
