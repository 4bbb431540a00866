"""The body of a delivery, to the byte: the producer's JSON in an envelope of ours. Pure.

Receivers verify bytes, so every attempt must send the same ones, and nothing is encoded anew:
1.0 stays 1.0, and a whole number of twenty digits keeps all of them.
"""

from datetime import UTC, datetime
from functools import lru_cache

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
            b',"timestamp":"',
            timestamp(occurred_at).encode(),
            b'","data":',
            data.encode() if isinstance(data, str) else data,
            b"}",
        )
    )


@lru_cache(maxsize=1_024)  # Events that were accepted together share their instant.
def timestamp(at: datetime) -> str:
    """Return an instant as RFC 3339 in UTC, always with six digits after the seconds."""
    assert at.tzinfo is not None, "a naive instant would be taken for local time"
    return at.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"
