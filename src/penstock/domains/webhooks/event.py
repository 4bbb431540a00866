"""An event on its way in: what a producer hands over, and what may be refused of it. Pure."""

import re
from datetime import datetime
from typing import Literal

import msgspec
from msgspec import Struct

from penstock.base.errors import InvalidInput
from penstock.domains.webhooks.match import check_type
from penstock.kernel import payload

DEFAULT_TENANT = "default"
EVENT_ID = r"[A-Za-z0-9_-]{1,128}"  # It is signed between dots, and is part of a header.
TENANT_LENGTH_MAX = 128
SOURCE_LENGTH_MAX = 255
IDEMPOTENCY_KEY_LENGTH_MAX = 255

OUR_TYPES = "penstock."
TEST_TYPE = "penstock.test"

AcceptOutcome = Literal["accepted", "existing", "conflict"]

_json = msgspec.json.Decoder(msgspec.Raw)
_EVENT_ID = re.compile(EVENT_ID)
# What JSON may hold and PostgreSQL's jsonb may not, so that filters could not be asked: half a
# character, and numbers of more digits than anybody means.
_UNSTORABLE = re.compile(r"\\u[dD][89a-fA-F]|[eE][+-]?[0-9]{4,}|[0-9]{1000}")


class NewEvent(Struct, frozen=True, kw_only=True):
    """What a producer hands over; `data` is JSON text and is kept to the byte."""

    type: str
    data: str
    id: str | None = None
    source: str | None = None
    tenant: str = DEFAULT_TENANT
    idempotency_key: str | None = None


class AcceptedEvent(Struct, frozen=True, kw_only=True):
    """What became of an event. With a conflict nothing was done.

    Nobody knows of deliveries yet when a broker has taken the event.
    """

    outcome: AcceptOutcome
    event_id: str
    accepted_at: datetime | None
    deliveries: int | None


def read_data(raw: msgspec.Raw | bytes, *, bytes_max: int) -> str:
    """Return an event's data as text, or raise InvalidInput for what no filter could read."""
    if len(bytes(raw)) > bytes_max:
        raise InvalidInput("data", f"is over {bytes_max} bytes")
    try:
        text = payload.encode(_json.decode(raw))
    except InvalidInput as refused:
        raise InvalidInput("data", refused.reason) from refused
    except (msgspec.DecodeError, RecursionError) as refused:
        raise InvalidInput("data", f"is not JSON: {refused}") from refused
    except UnicodeDecodeError as refused:
        raise InvalidInput("data", "is not UTF-8") from refused
    if _UNSTORABLE.search(text):
        _refuse_unstorable(text)
    return text


def check(event: NewEvent) -> None:
    """Raise InvalidInput for a field, other than the data, that the database would refuse."""
    check_type(event.type)
    if event.type.startswith(OUR_TYPES):
        raise InvalidInput("type", f"{OUR_TYPES}… belongs to Penstock")
    if event.id is not None and not _EVENT_ID.fullmatch(event.id):
        raise InvalidInput("id", "must have 1 to 128 of the characters A-Z a-z 0-9 _ -")
    _check_text("source", event.source, SOURCE_LENGTH_MAX)
    _check_text("tenant", event.tenant, TENANT_LENGTH_MAX)
    _check_text("Idempotency-Key", event.idempotency_key, IDEMPOTENCY_KEY_LENGTH_MAX)


def _check_text(field: str, text: str | None, length_max: int) -> None:
    if text is None:
        return
    if not 1 <= len(text) <= length_max:
        raise InvalidInput(field, f"must have 1 to {length_max} characters")
    if "\x00" in text:
        raise InvalidInput(field, "holds a NUL character")


def _refuse_unstorable(text: str) -> None:
    """Check suspected data: a surrogate pair is one character, and texts may hold any digits."""
    strings = re.compile(r'"(?:[^"\\]|\\.)*"')
    for string in strings.findall(text):
        try:
            msgspec.json.decode(string).encode()
        except (msgspec.DecodeError, UnicodeEncodeError):
            raise InvalidInput("data", "contains an unpaired surrogate") from None
    if _UNSTORABLE.search(strings.sub("", text)):
        raise InvalidInput("data", "holds a number of more than a thousand digits")
