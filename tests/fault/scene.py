"""What the fault tests share: a server that may be killed, workers that may be killed, a record."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from penstock.base.errors import DatabaseAway
from penstock.base.log import get_logger
from penstock.base.meter import Meter
from penstock.kernel.enqueue import enqueue_many
from penstock.kernel.inspect import Balance, balance
from penstock.kernel.item import NewItem
from penstock.kernel.lane import create_lane
from penstock.kernel.sweep import sweep
from penstock.postgres.embedded import Server, embedded_server
from penstock.postgres.migrate import migrate
from penstock.postgres.pool import Pool, database_away, open_pool
from tests.database import OWNERS
from tests.fault.waiting import moment, until

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0  # Seconds for what takes a few on an idle machine.
LEASE = timedelta(seconds=10)  # Nobody but the killed should lose one, however busy the machine.
MAX_ATTEMPTS = 50  # Nothing may die of being lost again and again: these tests kill a lot.
BALANCE_PAUSE = 0.2
SWEEP_PAUSE = 0.5


@dataclass(slots=True)
class Scene:
    """One server, its database, the record that all workers write, and the workers alive."""

    server: Server
    pool: Pool
    folder: Path
    workers: list[asyncio.subprocess.Process] = field(default_factory=list)
    balances: list[Balance] = field(default_factory=list)

    @property
    def record(self) -> Path:
        return self.folder / "record"

    def starts(self) -> list[tuple[int, int, str]]:
        """Return (item, token, order key) of each start, in the order in which they happened."""
        lines = self.record.read_text(encoding="ascii").splitlines()
        return [(int(item), int(token), key) for item, token, key in map(str.split, lines)]

    def starts_count(self) -> int:
        return self.record.read_bytes().count(b"\n") if self.record.exists() else 0

    async def start_worker(self) -> asyncio.subprocess.Process:
        """Start a worker process; it waits for the database by itself."""
        with (self.folder / "workers.log").open("ab") as log:
            worker = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.fault.worker", self.server.dsn, str(self.record)),
                cwd=ROOT,
                stdout=log,
                stderr=log,
                env={**os.environ, "PENSTOCK_POOL_SIZE_MIN": "1", "PENSTOCK_POOL_SIZE_MAX": "6"},
            )
        self.workers.append(worker)
        return worker

    async def kill(self, worker: asyncio.subprocess.Process) -> None:
        """Send SIGKILL to one of our own workers."""
        self.workers.remove(worker)
        if worker.returncode is None:
            worker.kill()
        await worker.wait()

    async def terminate(self, worker: asyncio.subprocess.Process) -> int:
        """Send SIGTERM, wait for the end, and return the exit code."""
        self.workers.remove(worker)
        worker.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            return await worker.wait()

    def kill_postgres(self) -> None:
        """Send SIGKILL to our own postmaster; the scene's server is restarted by its keeper."""
        pid = self.server.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    async def balance(self) -> Balance | None:
        """Count all items in one snapshot; None while the database is away."""
        try:
            with database_away():
                return await balance(self.pool)
        except DatabaseAway:
            return None

    async def is_drained(self) -> bool:
        counted = await self.balance()
        return counted is not None and counted.done + counted.dead == counted.accepted


@asynccontextmanager
async def scene(folder: Path, *, lease: timedelta = LEASE) -> AsyncGenerator[Scene]:
    """Run a server of its own (fsync on) with two lanes; end all workers that are left."""
    async with embedded_server(folder / "data") as server:
        pool = await open_pool(server.dsn, min_size=1, max_size=4)
        async with pool.acquire() as db:
            await migrate(db, OWNERS)
            for name, ordering in (("loose", "none"), ("line", "per_key")):
                await create_lane(
                    db,
                    name,
                    who="test",
                    ordering=ordering,
                    lease=lease,
                    max_attempts=MAX_ATTEMPTS,
                    backoff_base=timedelta(milliseconds=50),
                )
        opened = Scene(server, pool, folder)
        try:
            yield opened
        finally:
            for worker in list(opened.workers):
                await opened.kill(worker)
            pool.terminate()


async def fill(pool: Pool, lane: str, items: Sequence[NewItem]) -> None:
    async with pool.acquire() as db:
        await enqueue_many(db, lane, items)


async def sweep_often(scene: Scene) -> None:
    """Rescue what killed workers held sooner than their own sweepers would."""
    while True:
        with suppress(DatabaseAway), database_away():
            await sweep(scene.pool, meter=Meter(), log=get_logger())
        await moment(SWEEP_PAUSE)


async def watch_balance(scene: Scene) -> None:
    """Count over and over, and fail at once when an item is in no place, or in two."""
    while True:
        counted = await scene.balance()
        if counted is not None:
            assert counted.is_even, counted
            scene.balances.append(counted)
        await moment(BALANCE_PAUSE)


async def until_started(scene: Scene, count: int, *, within: float = PATIENCE) -> None:
    """Wait until the workers have started this many items."""

    async def has_grown() -> bool:
        return scene.starts_count() >= count

    await until(has_grown, within=within)
