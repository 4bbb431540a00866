"""Up to a thousand events in one body, with one result for each."""

from collections.abc import Sequence

import msgspec

from penstock.base.errors import InvalidInput
from penstock.contract.http import ACQUIRE_TIMEOUT, Content, Stream
from penstock.domains.webhooks import wire
from penstock.domains.webhooks.accept import accept_events
from penstock.domains.webhooks.event import AcceptedEvent, NewEvent, check, read_data
from penstock.postgres.pool import Pool

BODY_BYTES_MAX = 32 * 1024 * 1024

_array = msgspec.json.Decoder(list[msgspec.Raw])
_event = msgspec.json.Decoder(wire.NewEvent)


async def answer_batch(pool: Pool, stream: Stream, *, data_bytes_max: int) -> Content:
    """Accept what the body holds, in one transaction, and return a result for each event."""
    entries = await _entries(stream)
    sound: dict[int, NewEvent] = {}
    results: dict[int, wire.Result] = {}
    for index, entry in enumerate(entries):
        try:
            sound[index] = _read(entry, data_bytes_max)
        except InvalidInput as refused:
            results[index] = wire.Result(index=index, outcome="invalid", detail=str(refused))
    if sound:
        async with pool.acquire(timeout=ACQUIRE_TIMEOUT.total_seconds()) as db:
            accepted = await accept_events(db, list(sound.values()))
        for index, each in zip(sound, accepted, strict=True):
            results[index] = _result(index, each)
    answer = msgspec.json.encode([results[index] for index in range(len(entries))])
    return Content(body=answer, media_type=stream.media_type)


def read_event(given: wire.NewEvent, *, data_bytes_max: int, key: str | None = None) -> NewEvent:
    """Return an event as it can be accepted, or raise InvalidInput."""
    event = NewEvent(
        type=given.type,
        data=read_data(given.data, bytes_max=data_bytes_max),
        id=given.id,
        source=given.source,
        tenant=given.tenant,
        idempotency_key=key,
    )
    check(event)
    return event


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
        raise InvalidInput("body", f"must hold 1 to {wire.BATCH_MAX:,} events")
    return entries


def _read(entry: msgspec.Raw, data_bytes_max: int) -> NewEvent:
    try:
        given = _event.decode(entry)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as malformed:
        raise InvalidInput("event", str(malformed)) from malformed
    return read_event(given, data_bytes_max=data_bytes_max)


def _result(index: int, accepted: AcceptedEvent) -> wire.Result:
    detail = None
    if accepted.outcome == "conflict":
        detail = "this id was accepted before with another content"
    return wire.Result(
        index=index,
        outcome=accepted.outcome,
        id=accepted.event_id,
        deliveries=accepted.deliveries,
        detail=detail,
    )
