"""The events that the webhook bars are measured with: 1 KB of data each, known by their number."""

from typing import Final

TYPE: Final = "order.paid"
DATA_BYTES: Final = 1024
KEYS: Final = 1000  # The entities that events are about; `data.key` names them.

_PAD: Final = b"x" * DATA_BYTES


def data(number: int) -> bytes:
    """Return the event's data as JSON, exactly DATA_BYTES long."""
    head = b'{"key":"%03d","number":%d,"pad":"' % (number % KEYS, number)
    return b'%b%b"}' % (head, _PAD[: DATA_BYTES - len(head) - 2])
