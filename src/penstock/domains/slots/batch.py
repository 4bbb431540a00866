"""Many slot requests in one body, as a JSON array or NDJSON, with one result for each.

Lines are booked in chunks while the body is read.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from tempfile import SpooledTemporaryFile
from typing import IO

import msgspec

from penstock.base.aio import meanwhile
from penstock.base.errors import InvalidInput
from penstock.contract.http import ACQUIRE_TIMEOUT, Content, Stream
from penstock.contract.ndjson import (
    NDJSON,
    SPOOLED_BYTES_MAX,
    Line,
    LineLimits,
    LineTooLong,
    chunks_of_lines,
    sent_and_closed,
)
from penstock.domains.slots import wire
from penstock.domains.slots.assign import (
    CHUNK,
    GIVEN,
    Assigned,
    SlotRequest,
    assign_chunk,
    check,
    refusal_of,
)
from penstock.domains.slots.errors import UnknownPool
from penstock.domains.slots.slot import instant_text
from penstock.postgres.pool import Pool

JSON = "application/json"
ARRAY_BYTES_MAX = 32 * 1024 * 1024  # An array is decoded as a whole; larger batches are NDJSON.
# A line is at most ten times as long as the longest valid request.
LINES = LineLimits(lines_max=1_000_000, line_bytes_max=4096, chunk=CHUNK)

_Numbered = tuple[int, SlotRequest]
_Entries = Sequence[Line | msgspec.Raw]

_line = msgspec.json.Decoder(wire.NewSlot)
_array = msgspec.json.Decoder(list[msgspec.Raw])
_encoder = msgspec.json.Encoder()


async def answer_batch(db: Pool, stream: Stream) -> Content:
    """Book the requests of a body and return a result for each, in order."""
    # Closed by the response: it outlives this call.
    answers = SpooledTemporaryFile(max_size=SPOOLED_BYTES_MAX)  # noqa: SIM115
    try:
        if stream.media_type == NDJSON:
            await _answer_lines(db, stream, answers)
        else:
            await _answer_array(db, stream, answers)
    except BaseException:
        answers.close()
        raise
    return Content(body=sent_and_closed(answers), media_type=stream.media_type)


async def _answer_lines(db: Pool, stream: Stream, answers: IO[bytes]) -> None:
    def write(results: Iterable[wire.Result]) -> None:
        answers.writelines(_encoder.encode(result) + b"\n" for result in results)

    await _answer_all(db, chunks_of_lines(stream.chunks, LINES), write)


async def _answer_array(db: Pool, stream: Stream, answers: IO[bytes]) -> None:
    def write(results: Iterable[wire.Result]) -> None:
        answers.writelines(
            (b"," if result.index else b"") + _encoder.encode(result) for result in results
        )

    answers.write(b"[")
    await _answer_all(db, _chunks_of_array(stream.chunks), write)
    answers.write(b"]")


async def _chunks_of_array(chunks: AsyncIterator[bytes]) -> AsyncIterator[_Entries]:
    """Yield lists of at most CHUNK entries, not yet decoded."""
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > ARRAY_BYTES_MAX:
            raise InvalidInput("body", f"is over {ARRAY_BYTES_MAX} bytes; send {NDJSON} instead")
    try:
        entries = _array.decode(body)
    except msgspec.DecodeError as malformed:
        raise InvalidInput("body", f"is not a JSON array: {malformed}") from malformed
    except RecursionError as deep:
        raise InvalidInput("body", "is nested too deeply") from deep
    for start in range(0, len(entries), CHUNK):
        yield entries[start : start + CHUNK]


@dataclass(slots=True)
class _Chunk:
    """Decoded requests: the valid ones by pool, and the results of the invalid ones."""

    first: int
    size: int
    by_pool: dict[str, list[_Numbered]] = field(default_factory=dict[str, list[_Numbered]])
    results: dict[int, wire.Result] = field(default_factory=dict[int, wire.Result])
    booked: dict[str, list[Assigned] | UnknownPool] = field(
        default_factory=dict[str, "list[Assigned] | UnknownPool"]
    )


async def _answer_all(
    db: Pool, chunks: AsyncIterator[_Entries], write: Callable[[Iterable[wire.Result]], None]
) -> None:
    """Read, book and write; decode the next and encode the previous chunk while one is booked."""

    def write_and_read(done: _Chunk, entries: _Entries, first: int) -> _Chunk:
        write(_results(done))
        return _read(entries, first=first)

    booked = waiting = _Chunk(0, 0)
    async for entries in chunks:
        done, booked = booked, waiting
        work = partial(write_and_read, done, entries, waiting.first + waiting.size)
        _, waiting = await meanwhile(_book(db, booked), work)
    write(_results(booked))
    await _book(db, waiting)
    write(_results(waiting))


def _read(entries: _Entries, *, first: int) -> _Chunk:
    chunk = _Chunk(first, len(entries))
    for index, entry in enumerate(entries, start=first):
        try:
            request = _decoded(entry)
        except InvalidInput as refused:
            chunk.results[index] = wire.Result(index=index, outcome="invalid", detail=str(refused))
        else:
            numbered = (index, SlotRequest(request.event_id, request.requested_time))
            chunk.by_pool.setdefault(request.config_name, []).append(numbered)
    return chunk


def _decoded(entry: Line | msgspec.Raw) -> wire.NewSlot:
    if isinstance(entry, LineTooLong):
        raise entry.refusal()
    try:
        request = _line.decode(entry)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as malformed:
        raise InvalidInput("body", str(malformed)) from malformed
    check(SlotRequest(request.event_id, request.requested_time))
    if "\x00" in request.config_name:
        raise InvalidInput("configName", "holds a NUL character")
    return request


async def _book(db: Pool, chunk: _Chunk) -> None:
    """Book one chunk, with one statement per pool."""
    for pool, numbered in chunk.by_pool.items():
        try:
            async with db.acquire(timeout=ACQUIRE_TIMEOUT.total_seconds()) as connection:
                chunk.booked[pool] = await assign_chunk(
                    connection, pool, [request for _, request in numbered]
                )
        except UnknownPool as unknown:
            chunk.booked[pool] = unknown


def _results(chunk: _Chunk) -> Iterable[wire.Result]:
    """Return the results of a chunk's requests, in order."""
    for pool, booked in chunk.booked.items():
        numbered = chunk.by_pool[pool]
        if isinstance(booked, UnknownPool):
            found = (_unknown(index, request, booked) for index, request in numbered)
        else:
            found = (
                _result(index, assigned, pool, request=request)
                for (index, request), assigned in zip(numbered, booked, strict=True)
            )
        chunk.results.update((result.index, result) for result in found)
    return [chunk.results[index] for index in range(chunk.first, chunk.first + chunk.size)]


def _unknown(index: int, request: SlotRequest, unknown: UnknownPool) -> wire.Result:
    return wire.Result(
        index=index, outcome="unknown_config", event_id=request.event_id, detail=str(unknown)
    )


def _result(index: int, assigned: Assigned, pool: str, *, request: SlotRequest) -> wire.Result:
    slot = assigned.slot
    is_given = assigned.outcome in GIVEN
    booked_before = None if assigned.outcome == "assigned" else slot
    return wire.Result(
        index=index,
        outcome=assigned.outcome,
        event_id=request.event_id,
        scheduled_time=None if slot is None else instant_text(slot.scheduled_at),
        delay_ms=None if slot is None else slot.delay_ms,
        config_name=None if booked_before is None else booked_before.pool,
        requested_time=(
            None if booked_before is None else instant_text(booked_before.requested_at)
        ),
        detail=None if is_given else str(refusal_of(assigned, pool, request)),
    )
