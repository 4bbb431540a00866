"""Processes that the fork server starts: how tests start them, signal them, and await their end."""

import asyncio
import os
import select
import signal
import sys
from asyncio import subprocess
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import msgspec

from penstock.base.aio import finish
from tests.fault.fork_server import Reap, Start
from tests.fault.waiting import until

ROOT = Path(__file__).parents[2]
# The clock is replaced before anything is imported that reads it.
START = """
from tests.fault.system_time import install
install()
from tests.fault.fork_server import main
main()
"""

LOGGED_SECONDS_MAX = 60.0  # What a process does first takes a second on an idle machine.
FORK_SECONDS_MAX = timedelta(seconds=10)  # It takes milliseconds, after the first of a module.


@dataclass(slots=True, kw_only=True, eq=False)
class Child:
    """One process. Its descriptor names this process for ever, also after its pid is reused."""

    forks: "ForkServer"
    pid: int
    log: Path
    descriptor: int
    exit_code: int | None = None

    @property
    def is_running(self) -> bool:
        """Whether it has not ended; also true of one that is stopped."""
        if self.exit_code is not None:
            return False
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        return not poll.poll(0)

    @property
    def is_stopped(self) -> bool:
        """Whether it has received SIGSTOP."""
        if not self.is_running:
            return False
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8")
        except (FileNotFoundError, ProcessLookupError):
            return False
        return stat.rpartition(")")[2].split()[0] == "T"

    def send(self, number: signal.Signals) -> bool:
        """Send a signal; False if it does not run any more."""
        if not self.is_running:
            return False
        signal.pidfd_send_signal(self.descriptor, number)
        return True

    async def until_logged(self, text: str, *, within: float = LOGGED_SECONDS_MAX) -> None:
        """Wait until its log has this text; a log that several processes share is no use here."""

        async def is_logged() -> bool:
            is_running = self.is_running
            logged = self.log.read_text(encoding="utf-8") if self.log.exists() else ""
            assert is_running or text in logged, f"no {text!r} in:\n{logged}"
            return text in logged

        await until(is_logged, within=within)

    async def wait(self) -> int:
        """Return its exit code when it has ended: minus the signal that killed it, if one did."""
        if self.exit_code is None:
            await self._until_ended()
            await self.forks.reap(self)
        assert self.exit_code is not None
        return self.exit_code

    async def _until_ended(self) -> None:
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


@dataclass(slots=True)
class ForkServer:
    """The connection to the process that forks."""

    process: subprocess.Process
    children: list[Child] = field(default_factory=list[Child])  # Those that are not reaped.
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def start(
        self,
        module: str,
        *arguments: str,
        log: Path,
        environment: Mapping[str, str] | None = None,
        folder: Path = ROOT,
    ) -> Child:
        """Run a module as `python -m` does; its environment is that of the tests if none is given.

        What it prints is appended to the log.
        """
        start = Start(
            module=module,
            arguments=list(arguments),
            environment=dict(os.environ if environment is None else environment),
            folder=str(folder),
            log=str(log),
        )
        forking = asyncio.ensure_future(self._fork(start))
        try:
            return await asyncio.shield(forking)
        except asyncio.CancelledError:
            # The caller does not know this child.
            child = await finish(forking, within=FORK_SECONDS_MAX)
            await child.end()
            raise

    async def _fork(self, start: Start) -> Child:
        async with self._lock:
            pid = await self._ask(start)
        child = Child(forks=self, pid=pid, log=Path(start.log), descriptor=os.pidfd_open(pid))
        self.children.append(child)
        return child

    async def end_all(self) -> None:
        """Kill what still runs."""
        for child in list(self.children):
            await child.end()

    async def reap(self, child: Child) -> None:
        """Read the exit code of a child that has ended; a repeat does nothing."""
        await finish(self._reap(child), within=FORK_SECONDS_MAX)

    async def _reap(self, child: Child) -> None:
        async with self._lock:
            if child.exit_code is None:
                child.exit_code = await self._ask(Reap(pid=child.pid))
                self.children.remove(child)
                os.close(child.descriptor)

    async def _ask(self, request: Start | Reap) -> int:
        """Return the response; not to be cancelled, or the next caller would take it for its own.

        The caller holds the lock.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(msgspec.json.encode(request) + b"\n")
        return int(await self.process.stdout.readline())


@asynccontextmanager
async def forking() -> AsyncGenerator[ForkServer]:
    """Run a fork server; what it has started ends with it."""
    process = await subprocess.create_subprocess_exec(
        *(sys.executable, "-u", "-c", START),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield ForkServer(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
