"""The request body of a delivery, to the byte: the producer's JSON within our object. Pure.

Receivers verify bytes, so every attempt must send the same ones, and nothing is encoded again:
1.0 stays 1.0, and a whole number of twenty digits keeps all of them.
"""

from datetime import UTC, datetime

import msgspec

_encode = msgspec.json.Encoder().encode


def compose(
    *, event_id: str, event_type: str, source: str | None, occurred_at: datetime, data: str | bytes
) -> bytes:
    """Return the JSON object that is sent; `data` is JSON text that was checked when it came in."""
    assert data, "nothing is not JSON"
    return b"".join(
        (
            b'{"id":',
            _encode(event_id),
            b',"type":',
            _encode(event_type),
            b"" if source is None else b',"source":' + _encode(source),
            b',"timestamp":',
            timestamp(occurred_at),
            b',"data":',
            data.encode() if isinstance(data, str) else data,
            b"}",
        )
    )


def timestamp(at: datetime) -> bytes:
    """Return an instant as JSON: RFC 3339 in UTC, always with six digits after the seconds."""
    assert at.tzinfo is not None, "a naive instant would be taken for local time"
    text = _encode(at if at.tzinfo is UTC else at.astimezone(UTC))
    return text if at.microsecond else text.replace(b"Z", b".000000Z")
