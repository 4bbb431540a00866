"""The workers of the demo: processes which may be killed and replaced."""

import asyncio
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from penstock.base.aio import finish
from penstock.base.settings import environment_with
from penstock.cli.demo.receivers import LOOPBACK
from penstock.cli.errors import WorkerNotStarted

KILL_INTERVAL = timedelta(seconds=3)
START_MAX = timedelta(minutes=2)  # Many times what a start takes on a busy machine.
STOP_MAX = timedelta(seconds=5)  # The work is done by then, and the database is thrown away.
LOG = "workers.log"
WORKER = ("worker", "--no-migrate")
TEMPORAL_WORKER = ("temporal", "worker", "--only", "exec")
# Loopback is where the receiver of events is. Workers that the demo kills are not logged.
VARIABLES = {"PENSTOCK_EGRESS_ALLOW": f"{LOOPBACK}/32", "PENSTOCK_LOG_LEVEL": "error"}


@dataclass(frozen=True, slots=True)
class _Worker:
    """A running process, and the command that it was started with."""

    command: Sequence[str]
    process: Process


@dataclass(slots=True, kw_only=True)
class DemoWorkers:
    """The running workers, the oldest first, and when others were killed."""

    folder: Path
    variables: Mapping[str, str]
    killed_at: list[float] = field(default_factory=list[float])
    _running: deque[_Worker] = field(default_factory=deque[_Worker])

    async def kill_forever(self) -> None:
        """Kill the oldest worker and start another one in its place, again and again."""
        while True:
            oldest = self._running.popleft()
            oldest.process.kill()
            self.killed_at.append(time.time())
            await oldest.process.wait()
            await self.start(oldest.command)
            await asyncio.sleep(KILL_INTERVAL.total_seconds())

    async def start(self, command: Sequence[str]) -> None:
        """Start a worker, and return once it works."""
        # Cancelled before it is noted, the process would outlive the demo.
        worker = await finish(self._spawn(command), within=STOP_MAX)
        assert worker.stdout is not None, "it is a pipe"
        line = b""
        with suppress(TimeoutError):
            async with asyncio.timeout(START_MAX.total_seconds()):
                line = await worker.stdout.readline()
        if not line:
            raise WorkerNotStarted(_last_line(self.folder / LOG))

    async def _spawn(self, command: Sequence[str]) -> Process:
        with (self.folder / LOG).open("ab") as log:
            worker = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "penstock.cli", *command, "--json"),
                *("--data-dir", str(self.folder)),
                env=environment_with({**VARIABLES, **self.variables}),
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=log,
            )
        self._running.append(_Worker(command, worker))
        return worker

    async def stop(self) -> None:
        """Stop all workers; those that take long are killed."""
        processes = [each.process for each in self._running]
        for worker in processes:
            with suppress(ProcessLookupError):
                worker.terminate()
        for worker in processes:
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_MAX.total_seconds()):
                    await worker.wait()
            if worker.returncode is None:
                worker.kill()
                await worker.wait()


@asynccontextmanager
async def working(
    folder: Path, commands: Sequence[Sequence[str]], *, variables: Mapping[str, str]
) -> AsyncGenerator[DemoWorkers]:
    """Run a worker for each command on the database of a data folder while the body runs."""
    workers = DemoWorkers(folder=folder, variables=variables)
    try:
        for command in commands:
            await workers.start(command)
        yield workers
    finally:
        await workers.stop()


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return lines[-1] if lines else "it has not written why"
