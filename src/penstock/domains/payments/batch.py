"""Many payments in one body, as a JSON array or NDJSON, with one result for each."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from tempfile import SpooledTemporaryFile

import msgspec

from penstock.base.errors import InvalidInput, PenstockError
from penstock.contract.http import Content, Stream
from penstock.contract.ndjson import (
    NDJSON,
    SPOOLED_BYTES_MAX,
    Line,
    LineLimits,
    LineTooLong,
    chunks_of_lines,
    sent_and_closed,
)
from penstock.domains.payments import wire
from penstock.domains.payments.batcher import PaymentBatcher
from penstock.domains.payments.payment import Draft, ScheduleResult

JSON = "application/json"
PAYMENT_BYTES_MAX = 16 * 1024  # Several times the longest valid payment.
BATCH_BYTES_MAX = 16 * 1024 * 1024
LINES = LineLimits(lines_max=1_000_000, line_bytes_max=PAYMENT_BYTES_MAX, chunk=wire.BATCH_MAX)

_array = msgspec.json.Decoder(list[msgspec.Raw])


async def answer_array(batcher: PaymentBatcher, stream: Stream, *, who: str) -> Content:
    """Schedule the payments of a JSON array in one transaction."""
    results = await _schedule(batcher, await _entries(stream.chunks), who=who, first=0)
    return Content(body=msgspec.json.encode(results), media_type=JSON)


async def answer_lines(batcher: PaymentBatcher, stream: Stream, *, who: str) -> Content:
    """Schedule the payments of NDJSON, BATCH_MAX in one transaction, while the body is read."""
    # Closed by the response: it outlives this call.
    answers = SpooledTemporaryFile(max_size=SPOOLED_BYTES_MAX)  # noqa: SIM115
    first = 0
    try:
        async for lines in chunks_of_lines(stream.chunks, LINES):
            results = await _schedule(batcher, lines, who=who, first=first)
            answers.writelines(msgspec.json.encode(each) + b"\n" for each in results)
            first += len(lines)
    except BaseException:
        answers.close()
        raise
    return Content(body=sent_and_closed(answers), media_type=NDJSON)


async def _schedule(
    batcher: PaymentBatcher, entries: Sequence[Line | msgspec.Raw], *, who: str, first: int
) -> list[wire.Result]:
    def read() -> tuple[list[Draft | PenstockError], list[str | None]]:
        drafts = [read_payment(batcher, entry, who=who) for entry in entries]
        return drafts, list(map(_find_id, drafts, entries))

    # A thousand of them take a tenth of a second, in which nobody else would be served.
    drafts, payment_ids = await asyncio.to_thread(read)
    sound = [(place, each) for place, each in enumerate(drafts) if isinstance(each, Draft)]
    answers: dict[int, ScheduleResult] = {
        place: each for place, each in enumerate(drafts) if isinstance(each, PenstockError)
    }
    if sound:
        found = await batcher.accept_many([each for _, each in sound])
        answers |= {place: each for (place, _), each in zip(sound, found, strict=True)}
    return [
        wire.to_wire_result(first + place, answers[place], payment_id=payment_id)
        for place, payment_id in enumerate(payment_ids)
    ]


def read_payment(
    batcher: PaymentBatcher, entry: Line | msgspec.Raw, *, who: str
) -> Draft | PenstockError:
    """Return a payment that was checked and enriched, or what is wrong with it."""
    if isinstance(entry, LineTooLong):
        return entry.refusal()
    try:
        payment = wire.read_new_payment(bytes(entry), name="payment")
        return batcher.payments.prepare(payment, who=who)
    except InvalidInput as refused:
        return refused


def _find_id(draft: Draft | PenstockError, entry: Line | msgspec.Raw) -> str | None:
    """Return the id of a payment, also of one that is refused if its id can be read."""
    if isinstance(draft, Draft):
        return draft.payment_id
    return None if isinstance(entry, LineTooLong) else wire.find_payment_id(bytes(entry))


async def _entries(chunks: AsyncIterator[bytes]) -> Sequence[msgspec.Raw]:
    body = bytearray()
    async for chunk in chunks:
        body += chunk
    try:
        entries = _array.decode(body)
    except msgspec.DecodeError as malformed:
        raise InvalidInput("body", f"is not a JSON array: {malformed}") from malformed
    except RecursionError as deep:
        raise InvalidInput("body", "is nested too deeply") from deep
    if not 1 <= len(entries) <= wire.BATCH_MAX:
        raise InvalidInput("body", f"must have 1 to {wire.BATCH_MAX:,} payments")
    return entries
