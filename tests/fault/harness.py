"""The harness of the fault tests: a server and workers that can be killed, and their record."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import LiteralString

from penstock.base.log import get_logger
from penstock.base.meter import Meter
from penstock.kernel.enqueue import enqueue_many
from penstock.kernel.inspect import Balance, balance
from penstock.kernel.item import NewItem
from penstock.kernel.lane import create_lane
from penstock.kernel.sweep import sweep
from penstock.postgres.embedded import Server, embedded_server
from penstock.postgres.errors import DatabaseAway
from penstock.postgres.migrate import migrate
from penstock.postgres.pool import Pool, database_away, open_pool
from tests.database import MIGRATION_PACKAGES
from tests.fault.processes import Child, ForkServer
from tests.fault.record import count_lines, read_lines
from tests.fault.waiting import pause, until

WAIT_SECONDS = 120.0  # For what takes a few seconds on an idle machine.
LEASE = timedelta(seconds=10)  # Only killed workers should lose one, also on a busy machine.
MAX_ATTEMPTS = 50  # No item may become dead by lost attempts: these tests kill often.
BALANCE_SECONDS = 0.2
SWEEP_SECONDS = 0.5
WORKING: LiteralString = """
SELECT EXISTS (SELECT FROM penstock.ready) OR EXISTS (SELECT FROM penstock.parked)
    OR EXISTS (SELECT FROM penstock.lease)
"""


@dataclass(slots=True)
class Harness:
    """One server, its database, the running workers, and the record that all workers write."""

    server: Server
    pool: Pool
    forks: ForkServer
    folder: Path
    workers: list[Child] = field(default_factory=list[Child])
    balances: list[Balance] = field(default_factory=list[Balance])

    @property
    def record(self) -> Path:
        return self.folder / "record"

    def starts(self) -> list[tuple[int, int, str]]:
        """Return (item, token, order key) of each start, in the order in which they happened."""
        return [(int(item), int(token), key) for item, token, key in read_lines(self.record)]

    def starts_count(self) -> int:
        return count_lines(self.record)

    async def start_worker(
        self, module: str = "tests.fault.worker", *arguments: str, pool_size_max: int = 6
    ) -> Child:
        """Start a worker process; it waits for the database by itself."""
        worker = await self.forks.start(
            *(module, self.server.dsn, str(self.record), *arguments),
            log=self.folder / "workers.log",
            environment={
                **os.environ,
                "PENSTOCK_POOL_SIZE_MIN": "1",
                "PENSTOCK_POOL_SIZE_MAX": str(pool_size_max),
            },
        )
        self.workers.append(worker)
        return worker

    async def kill(self, worker: Child) -> None:
        """Send SIGKILL to one of the workers."""
        self.workers.remove(worker)
        await worker.end()

    async def terminate(self, worker: Child) -> int:
        """Send SIGTERM, wait for the end, and return the exit code."""
        self.workers.remove(worker)
        worker.send(signal.SIGTERM)
        async with asyncio.timeout(WAIT_SECONDS):
            return await worker.wait()

    def kill_postgres(self) -> None:
        """Send SIGKILL to the postmaster; `embedded_server` restarts it."""
        pid = self.server.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    async def balance(self) -> Balance | None:
        """Count all items in one snapshot; None while the database is unavailable."""
        try:
            with database_away():
                return await balance(self.pool)
        except DatabaseAway:
            return None

    async def is_drained(self) -> bool:
        """Whether all items are done or dead; they are counted only when none waits or runs."""
        if await self._is_working():
            return False
        counted = await self.balance()
        return counted is not None and counted.done + counted.dead == counted.accepted

    async def _is_working(self) -> bool:
        try:
            with database_away():
                return await self.pool.fetchval(WORKING)
        except DatabaseAway:
            return True


@asynccontextmanager
async def running_harness(
    folder: Path, forks: ForkServer, *, lease: timedelta = LEASE
) -> AsyncGenerator[Harness]:
    """Run a separate server (fsync on) with two lanes; kill the remaining workers at the end."""
    async with embedded_server(folder / "data") as server:
        pool = await open_pool(server.dsn, min_size=1, max_size=4)
        async with pool.acquire() as db:
            await migrate(db, MIGRATION_PACKAGES)
            for name, ordering in (("unordered", "none"), ("ordered", "per_key")):
                await create_lane(
                    db,
                    name,
                    who="test",
                    ordering=ordering,
                    lease=lease,
                    max_attempts=MAX_ATTEMPTS,
                    backoff_base=timedelta(milliseconds=50),
                )
        opened = Harness(server, pool, forks, folder)
        try:
            yield opened
        finally:
            for worker in list(opened.workers):
                await opened.kill(worker)
            pool.terminate()


async def fill(pool: Pool, lane: str, items: Sequence[NewItem]) -> None:
    async with pool.acquire() as db:
        await enqueue_many(db, lane, items)


async def sweep_often(harness: Harness) -> None:
    """Sweep more often than the workers' own sweepers do."""
    while True:
        with suppress(DatabaseAway), database_away():
            await sweep(harness.pool, meter=Meter(), log=get_logger())
        await pause(SWEEP_SECONDS)


async def watch_balance(harness: Harness) -> None:
    """Count repeatedly, and fail immediately if an item is in no table, or in two."""
    while True:
        counted = await harness.balance()
        if counted is not None:
            assert counted.is_even, counted
            harness.balances.append(counted)
        await pause(BALANCE_SECONDS)


async def until_started(harness: Harness, count: int, *, within: float = WAIT_SECONDS) -> None:
    """Wait until the workers have started this many items."""

    async def has_grown() -> bool:
        return harness.starts_count() >= count

    await until(has_grown, within=within)
