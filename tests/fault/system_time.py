"""The system clock of the forked processes, which a process can set wrong by minutes.

`install` replaces `time.time` and `time.time_ns` of the standard library, before anything imports
these names. See `set_offset` for what such a clock reaches, and what it does not.
"""

import time
from datetime import timedelta

_true_time, _true_time_ns = time.time, time.time_ns
_offset = timedelta()


def install() -> None:
    """Let this process and its forks read the clock through this module."""
    time.time, time.time_ns = _read, _read_ns


def set_offset(offset: timedelta) -> None:
    """Let the clock of this process be wrong by `offset`.

    Skewed is all that reads the system clock: the instant of a worker before its first answer of
    the database, and every instant of a process that only serves the API. Not skewed are the
    database, durations, which are counted on the monotonic and the boot clock, and
    `datetime.now`, which no worker and no report reads.
    """
    global _offset  # noqa: PLW0603  A process has one system clock.
    _offset = offset


def _read() -> float:
    return _true_time() + _offset.total_seconds()


def _read_ns() -> int:
    return _true_time_ns() + int(_offset.total_seconds()) * 1_000_000_000
