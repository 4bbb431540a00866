"""Processes that the fork server starts: how the harness kills them, and waits for their end."""

import asyncio
import os
import signal
import sys
from asyncio import subprocess
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import msgspec

from penstock.base.aio import finish
from tests.fault.harness import ROOT
from tests.fault.outbox_seeds.children import (
    ApiArguments,
    SimulatorArguments,
    WorkerArguments,
)

# The clock is replaced before anything is imported that reads it.
START = """
from tests.fault.outbox_seeds.system_time import install
install()
from tests.fault.outbox_seeds.fork_server import main
main()
"""

FORK_SECONDS_MAX = timedelta(seconds=10)  # It takes milliseconds.
SECRET_KEY = "cGVuc3RvY2stdGVzdHMtbmVlZC1hLWtleS1vZi0zMkI="
ENVIRONMENT: Mapping[str, str] = {
    "PENSTOCK_POOL_SIZE_MIN": "1",
    "PENSTOCK_POOL_SIZE_MAX": "6",
    "PENSTOCK_POLL_INTERVAL": "0.5",
    "PENSTOCK_OUTBOX_SIMULATOR": "true",
    "PENSTOCK_EGRESS_ALLOW": "127.0.0.0/8",  # For a rail on loopback with another adapter.
    "PENSTOCK_SECRET_KEY": SECRET_KEY,
}


@dataclass(slots=True)
class Child:
    """One process. Its descriptor names this process for ever, also after its pid is reused."""

    pid: int
    descriptor: int | None

    @property
    def is_stopped(self) -> bool:
        """Whether it has received SIGSTOP."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8")
        except (FileNotFoundError, ProcessLookupError):
            return False
        return self.descriptor is not None and stat.rpartition(")")[2].split()[0] == "T"

    def send(self, number: signal.Signals) -> bool:
        """Send a signal; False if it does not run any more."""
        if self.descriptor is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.descriptor, number)
                return True
        return False

    async def wait(self) -> None:
        """Return when it has ended."""
        if self.descriptor is None:
            return
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        # A copy: the loop keeps one callback for each descriptor.
        watched = os.dup(self.descriptor)
        loop.add_reader(watched, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(watched)
            os.close(watched)

    async def end(self) -> None:
        """Kill it, and return when it has ended."""
        self.send(signal.SIGKILL)
        await self.wait()
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


@dataclass(slots=True)
class ForkServer:
    """The connection to the process that forks."""

    process: subprocess.Process
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def start(
        self, arguments: WorkerArguments | ApiArguments | SimulatorArguments, *, log: Path
    ) -> Child:
        """Fork a process."""
        async with self._lock:
            forking = asyncio.ensure_future(self._fork({"arguments": arguments, "log": str(log)}))
            try:
                return await asyncio.shield(forking)
            except asyncio.CancelledError:
                # Nobody knows this child; and its pid, left unread, would be taken for the next's.
                child = await finish(forking, within=FORK_SECONDS_MAX)
                await child.end()
                raise

    async def _fork(self, request: Mapping[str, object]) -> Child:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(msgspec.json.encode(request) + b"\n")
        pid = int(await self.process.stdout.readline())
        try:
            return Child(pid, os.pidfd_open(pid))
        except ProcessLookupError:
            return Child(pid, None)


@asynccontextmanager
async def forking() -> AsyncGenerator[ForkServer]:
    """Run a fork server; what it has started ends with it."""
    process = await subprocess.create_subprocess_exec(
        *(sys.executable, "-c", START),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **ENVIRONMENT},
        start_new_session=True,
    )
    try:
        yield ForkServer(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
