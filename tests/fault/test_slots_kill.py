"""Real `kill -9` of callers, sessions and PostgreSQL while slots are assigned: none is lost."""

import os
import random
import signal
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.domains.slots.assign import CHUNK, assign_many
from penstock.domains.slots.config import set_config
from penstock.postgres.embedded import Server, embedded_server
from penstock.postgres.errors import DatabaseAway
from penstock.postgres.migrate import migrate
from penstock.postgres.pool import Connection, connect, database_away
from tests.database import MIGRATION_PACKAGES
from tests.fault.harness import WAIT_SECONDS
from tests.fault.processes import Child, ForkServer
from tests.fault.slot_client import POOL, START, line, request
from tests.fault.waiting import until

SEED = int(os.environ.get("PENSTOCK_FAULT_SEED", "18"))
CLIENTS = 4
CAPACITY = 50
SIZE = timedelta(seconds=1)
FAULTS = 12
SLOTS_BETWEEN = 400  # Assigned before the next fault.

SLOTS = """
SELECT event_id, window_at, window_at + position * interval '1 microsecond' AS place_at
FROM penstock.slot
"""
RUNS = "SELECT pool_id, first_cell, last_cell FROM penstock.slot_run ORDER BY 1, 2"
COUNT_RUNS = """
SELECT penstock.mark_cells(pool_id, '2000-01-01Z', '2200-01-01Z') FROM penstock.slot_pool
"""
KILL_A_BACKEND = """
SELECT pg_terminate_backend(pid)
FROM pg_stat_activity
WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
ORDER BY random()
LIMIT 1
"""


@dataclass(slots=True)
class Harness:
    """One server, the running callers, and the record of the slots that they were given."""

    server: Server
    forks: ForkServer
    folder: Path
    started: int = 0
    clients: list[Child] = field(default_factory=list[Child])

    @property
    def record(self) -> Path:
        return self.folder / "record"

    def recorded_count(self) -> int:
        return self.record.read_bytes().count(b"\n") if self.record.exists() else 0

    async def start_client(self) -> None:
        self.started += 1
        client = await self.forks.start(
            "tests.fault.slot_client",
            *(self.server.dsn, str(self.record), str(self.started)),
            log=self.folder / "clients.log",
        )
        self.clients.append(client)

    async def kill(self, client: Child) -> None:
        """Send SIGKILL to one of the callers; it must not have ended by itself."""
        self.clients.remove(client)
        assert client.is_running, client.log.read_text()
        await client.end()

    async def kill_backend(self) -> None:
        """Terminate the session of a random caller."""
        with suppress(DatabaseAway), database_away():
            db = await connect(self.server.dsn)
            await db.execute(KILL_A_BACKEND)
            await db.close()

    def kill_postgres(self) -> None:
        """Send SIGKILL to the postmaster; `embedded_server` restarts it."""
        pid = self.server.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    async def until_recorded(self, count: int) -> None:
        async def is_recorded() -> bool:
            return self.recorded_count() >= count

        await until(is_recorded, within=WAIT_SECONDS)


@asynccontextmanager
async def running_harness(folder: Path, forks: ForkServer) -> AsyncGenerator[Harness]:
    """Run a separate server (fsync on) with one pool; kill the remaining callers at the end."""
    async with embedded_server(folder / "data") as server:
        db = await connect(server.dsn)
        await migrate(db, MIGRATION_PACKAGES)
        await set_config(db, POOL, who="test", max_per_window=CAPACITY, window_size=SIZE, now=START)
        await db.close()
        opened = Harness(server, forks, folder)
        try:
            yield opened
        finally:
            for client in list(opened.clients):
                await opened.kill(client)


@pytest.mark.timeout(180)
@pytest.mark.covers("D3", "D48")
async def test_no_assigned_slot_is_lost_changed_or_assigned_twice_when_everything_is_killed(
    forks: ForkServer, tmp_path: Path
) -> None:
    """An answer must survive the caller, the session and the server."""
    print(f"PENSTOCK_FAULT_SEED={SEED}")
    chance = random.Random(SEED)
    async with running_harness(tmp_path, forks) as harness:
        for _ in range(CLIENTS):
            await harness.start_client()

        with_postgres = chance.sample(range(FAULTS), 2)
        for fault in range(FAULTS):
            await harness.until_recorded((fault + 1) * SLOTS_BETWEEN)
            if fault in with_postgres:
                harness.kill_postgres()
            elif chance.random() < 0.5:
                await harness.kill_backend()
            else:
                await harness.kill(chance.choice(harness.clients))
                await harness.start_client()
        await harness.until_recorded((FAULTS + 1) * SLOTS_BETWEEN)
        for client in list(harness.clients):
            await harness.kill(client)

        db = await connect(harness.server.dsn)
        await assert_answers_stay_true(db, harness.record.read_text().splitlines())
        await assert_nothing_is_booked_twice(db)
        await db.close()


async def assert_answers_stay_true(db: Connection, records: list[str]) -> None:
    """Each event was given one slot only, and a repeated request returns the same."""
    slots = {record.split(maxsplit=1)[0]: record for record in records}
    assert set(records) == set(slots.values())
    assert len(records) > len(slots), "some events were requested several times"

    requests = [request(event) for event in slots]
    for start in range(0, len(requests), CHUNK):
        again = await assign_many(db, POOL, requests[start : start + CHUNK], now=START)
        assert {answer.outcome for answer in again} == {"existing"}
        for answer in again:
            assert answer.slot is not None
            assert line(answer).rstrip() == slots[answer.slot.event_id]


async def assert_nothing_is_booked_twice(db: Connection) -> None:
    slots = await db.fetch(SLOTS)
    assert len({slot["place_at"] for slot in slots}) == len(slots)
    assert max(Counter(slot["window_at"] for slot in slots).values()) <= CAPACITY

    runs = [tuple(row) for row in await db.fetch(RUNS)]
    await db.execute(COUNT_RUNS)
    assert runs == [tuple(row) for row in await db.fetch(RUNS)]
    assert sum(last - first + 1 for _, first, last in runs) == len(slots)
