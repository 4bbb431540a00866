"""How much of the machine others use while we measure: a number to classify the ratios by."""

import contextlib
import os
import time
from collections.abc import Generator
from dataclasses import dataclass

import psutil


@dataclass(slots=True)
class Others:
    """The share of all CPU time that went to processes of others, known when the block is left."""

    percent: float = 0.0


@contextlib.contextmanager
def others(server_pid: int) -> Generator[Others]:
    """Watch the CPU; our own are this process, the server, and the children of both."""
    found = Others()
    started, busy, own = time.monotonic(), _busy_seconds(), _own_seconds(server_pid)
    yield found
    spent = (time.monotonic() - started) * (psutil.cpu_count() or 1)
    foreign = (_busy_seconds() - busy) - (_own_seconds(server_pid) - own)
    found.percent = max(0.0, 100 * foreign / spent)


def _busy_seconds() -> float:
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)


def _own_seconds(server_pid: int) -> float:
    total = 0.0
    for root in (os.getpid(), server_pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(root)
            for each in [process, *process.children(recursive=True)]:
                total += process_seconds(each)
    return total


def process_seconds(process: psutil.Process) -> float:
    """Return the CPU time of a process and of its children that have ended, in seconds."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    # A child that has ended is counted by its parent, one that lives by itself.
    return times.user + times.system + times.children_user + times.children_system
