"""UUIDs of version 7 (RFC 9562), which sort by the time when they were made.

Python has them from 3.14 on.
"""

import os
import time
from uuid import UUID

_RANDOM_BYTES = 10
_VERSION = 7 << 76
_VARIANT = 2 << 62
# Where the version and the variant are, behind 48 bits of milliseconds.
_FREE = (1 << 80) - 1 & ~(15 << 76) & ~(3 << 62)


def uuids_v7(count: int) -> list[UUID]:
    """Return new UUIDs of this millisecond; among each other they have no order."""
    front = (time.time_ns() // 1_000_000) << 80 | _VERSION | _VARIANT
    random = os.urandom(count * _RANDOM_BYTES)
    return [
        UUID(int=front | int.from_bytes(random[at : at + _RANDOM_BYTES]) & _FREE)
        for at in range(0, len(random), _RANDOM_BYTES)
    ]
