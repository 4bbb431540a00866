"""Run a process until a signal stops it.

Signals, output that nobody reads, the limit of open files, garbage collection.
"""

import asyncio
import fcntl
import gc
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from io import BufferedWriter, FileIO, TextIOWrapper
from ipaddress import ip_address
from pathlib import Path
from time import monotonic
from typing import Any, TextIO

import click
import uvloop

from penstock.base.errors import InvalidInput
from penstock.console.exits import Exit

OPEN_FILES = 16_384  # More than any lane's concurrency.
NEW_OBJECTS_MAX = 10_000  # Above this, the garbage collector looks for cycles among them.
SIGNALS = (signal.SIGINT, signal.SIGTERM)
# A second signal within this time is a duplicate: no person presses Ctrl-C twice that fast.
DUPLICATE_SECONDS = 0.5


@dataclass(slots=True)
class StopSignal:
    """What a signal does.

    During the start it cancels the process. Later the first one requests a clean stop, and a second
    one cancels the process.
    """

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    is_started: bool = False
    is_forced: bool = False
    asked_at: float | None = None

    def started(self) -> None:
        """End the start: from now on a signal requests a clean stop."""
        self.is_started = True
        freeze_loaded_objects()

    def signalled(self, process: asyncio.Task[Any]) -> None:
        """Request a clean stop, or cancel the process.

        A launcher may forward a signal that its process group gets anyway: a duplicate is ignored.
        """
        if self.asked_at is not None and monotonic() - self.asked_at < DUPLICATE_SECONDS:
            return
        if self.is_started and not self.asked.is_set():
            self.asked.set()
            self.asked_at = monotonic()
            click.echo("penstock: stopping; a second signal stops immediately", err=True)
        else:
            self.is_forced = self.asked.is_set()
            self.asked.set()
            process.cancel()


def freeze_loaded_objects() -> None:
    """Exclude the objects that live until the process ends from garbage collection.

    These 48,000 objects made a full collection block the loop for 30 to 70 ms, after which due
    items started in a burst; without them it took 7 to 26 ms. Calls in progress are not garbage:
    scanning them after every 700 new objects took 4 % of the API's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS_MAX, *gc.get_threshold()[1:])


def allow_open_files() -> None:
    """Raise the limit of open files as far as allowed: each call in progress is a connection.

    Also enlarge the operating system's table of them while there is one thread. Otherwise it grows
    at 256, 512 and 1,024 files, and opening that file blocks the loop for 7 to 15 ms.
    """
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if most == resource.RLIM_INFINITY else min(most, OPEN_FILES)
    if allowed < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    with Path(os.devnull).open(encoding="utf-8") as file:
        os.close(fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, wanted - 1))


class _Output(FileIO):
    """A standard stream that drops what cannot be written."""

    def write(self, data: Any, /) -> int | None:  # Whatever a buffered writer passes.
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def outlive_reader(stream: TextIO) -> TextIO:
    """Return a stream to the same file that never fails: a pipe's reader may end first.

    What it could not write is dropped, so that neither a handler that prints nor the end of the
    process fails because of it.
    """
    with suppress(OSError):
        stream.flush()
    raw = _Output(stream.fileno(), "w", closefd=False)
    return TextIOWrapper(
        BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=True,
    )


def run_until_stopped(
    work: Callable[[StopSignal], Coroutine[Any, Any, None]], *, needs_reader: bool = False
) -> None:
    """Run `work` until it ends by itself or a signal ends it; raises what it raises.

    It goes on when nobody reads its output any more, unless it `needs_reader` for its results on
    standard output.
    """
    allow_open_files()
    sys.stderr = outlive_reader(sys.stderr)
    if not needs_reader:
        sys.stdout = outlive_reader(sys.stdout)
    if not uvloop.run(_run(work)):
        sys.exit(Exit.INTERRUPTED)


async def _run(work: Callable[[StopSignal], Coroutine[Any, Any, None]]) -> bool:
    """Return whether it ended cleanly: by itself, or after one signal."""
    stop = StopSignal()
    process = asyncio.current_task()
    assert process is not None, "a coroutine runs in a task"
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stop.signalled, process)
    try:
        await work(stop)
    except asyncio.CancelledError:
        if not stop.asked.is_set():
            raise
    return not stop.is_forced


def check_host(host: str) -> None:
    """Warn about an address that others can reach; raises InvalidInput for an empty one."""
    if not host:
        raise InvalidInput("host", "must not be empty")
    try:
        is_private = ip_address(host).is_loopback
    except ValueError:
        is_private = host == "localhost"
    if not is_private:
        line = f"penstock: warning: {host} is reachable from other machines, without TLS"
        click.echo(line, err=True)
