"""An event as a message of a topic: JSON bytes, and back. Pure.

`{"id", "type", "source", "tenant", "data", "idempotency_key"}`, of which type and data must be
there. Other fields are ignored: old and new releases read one topic.
"""

from hashlib import sha256
from secrets import token_hex

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.base.errors import InvalidInput
from penstock.domains.webhooks.event import DEFAULT_TENANT, NewEvent, check, read_data


class _Message(Struct, frozen=True, kw_only=True):
    id: str | UnsetType | None = UNSET
    type: str
    source: str | UnsetType | None = UNSET
    tenant: str = DEFAULT_TENANT
    data: Raw
    idempotency_key: str | UnsetType | None = UNSET


_decoder = msgspec.json.Decoder(_Message)


def encode(event: NewEvent) -> bytes:
    """Return the event as bytes; its data is unchanged."""
    return msgspec.json.encode(
        _Message(
            id=UNSET if event.id is None else event.id,
            type=event.type,
            source=UNSET if event.source is None else event.source,
            tenant=event.tenant,
            data=Raw(event.data.encode()),
            idempotency_key=UNSET if event.idempotency_key is None else event.idempotency_key,
        )
    )


def decode(value: bytes | None, *, place: str, data_bytes_max: int) -> NewEvent:
    """Return the event as it can be accepted, or raise InvalidInput.

    One that has neither an id nor an idempotency key is named after its place in the topic, so
    that it is the same event when it is read again.
    """
    if value is None:
        raise InvalidInput("message", "is empty")
    try:
        given = _decoder.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as malformed:
        raise InvalidInput("message", _reason(malformed)) from malformed
    event = NewEvent(
        type=given.type,
        data=read_data(given.data, bytes_max=data_bytes_max),
        id=None if given.id is UNSET else given.id,
        source=None if given.source is UNSET else given.source,
        tenant=given.tenant,
        idempotency_key=None if given.idempotency_key is UNSET else given.idempotency_key,
    )
    if event.id is None and event.idempotency_key is None:
        event = msgspec.structs.replace(event, id=place)
    check(event)
    return event


def with_id(event: NewEvent) -> NewEvent:
    """Return the event with an id, before anybody could look whether it is known.

    The same idempotency key makes the same id, so that a repeat is recognised when it is accepted.
    """
    if event.id is not None:
        return event
    if event.idempotency_key is None:
        made = token_hex(16)
    else:
        made = sha256(f"{event.tenant}\x1f{event.idempotency_key}".encode()).hexdigest()[:32]
    return msgspec.structs.replace(event, id=f"evt_{made}")


def key_of(event: NewEvent) -> bytes:
    """Return what decides on the message's partition: an event's repeats follow each other."""
    return f"{event.tenant}/{event.id}".encode()


def _reason(malformed: Exception) -> str:
    """Say what is wrong with a message without quoting it."""
    if isinstance(malformed, UnicodeDecodeError):
        return "is not UTF-8"
    return str(malformed)
