"""Workers have rows: one while it runs, none after a clean stop, and none for ever."""

import asyncio
from datetime import UTC, datetime

from structlog.testing import capture_logs

from penstock import Item
from penstock.base.log import get_logger
from penstock.base.meter import Meter
from penstock.kernel.enqueue import enqueue
from penstock.kernel.heartbeat import ALIVE_FOR, FORGOTTEN_AFTER, list_workers, report_worker
from penstock.kernel.item import NewItem
from penstock.kernel.lane import Lane
from penstock.kernel.sweep import sweep
from penstock.postgres.pool import Connection, Pool
from tests.kernel.scene import NOON, PATIENCE, SECOND, kind_of, worker_of


async def succeed(item: Item[object]) -> None:
    """Do nothing."""


async def test_a_worker_has_a_row_while_it_runs(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """Without it nobody can say whether a lane is busy or has no worker at all."""
    worker, stop = worker_of(dsn, pool, kind_of(lane, succeed)), asyncio.Event()
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        group.create_task(worker.run(stop))
        while not (found := await list_workers(db, lane=lane.name)):
            pass
        stop.set()

    (row,) = found
    assert row.name == worker.name
    assert row.name.startswith(f"{row.host}:{row.pid}:")
    assert row.lanes == [lane.name]
    assert row.is_alive
    assert row.started_at <= row.seen_at <= datetime.now(UTC) + SECOND
    assert await list_workers(db) == [], "a clean stop leaves no row"


async def test_a_worker_that_was_not_seen_lately_is_not_alive(db: Connection) -> None:
    await report_worker(db, "crashed", ["mail"], now=NOON)
    await report_worker(db, "busy", ["mail", "calls"], now=NOON)
    await report_worker(db, "busy", ["mail"], now=NOON + ALIVE_FOR)

    rows = await list_workers(db, lane="mail", now=NOON + ALIVE_FOR)

    assert [(row.name, row.is_alive) for row in rows] == [("busy", True), ("crashed", False)]
    assert rows[0].started_at == NOON
    assert await list_workers(db, lane="calls") == []


async def test_the_sweeper_removes_a_worker_that_was_not_seen_for_a_day(
    pool: Pool, db: Connection
) -> None:
    """Containers get a new name at each start: their rows would pile up."""
    last_seen = await db.fetchval("SELECT now()")
    await report_worker(db, "crashed", [], now=last_seen)
    await report_worker(db, "busy", [], now=last_seen + SECOND)

    await sweep(pool, meter=Meter(), log=get_logger(), now=last_seen + FORGOTTEN_AFTER + SECOND / 2)

    assert [row.name for row in await list_workers(db)] == ["busy"]


async def test_a_worker_that_cannot_write_its_row_runs_its_items(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """The row is for people: a missing grant on it must not stop the work."""
    await db.execute("ALTER TABLE penstock.worker RENAME TO worker_of_another_role")
    has_run = asyncio.Event()

    async def run(_item: Item[object]) -> None:
        has_run.set()

    with capture_logs() as lines:
        worker, stop = worker_of(dsn, pool, kind_of(lane, run)), asyncio.Event()
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            group.create_task(worker.run(stop))
            await enqueue(db, lane.name, NewItem(payload=None))
            await has_run.wait()
            stop.set()

    failed = [line for line in lines if line["event"] == "heartbeat.failed"]
    assert {line["error"] for line in failed} == {"UndefinedTableError"}
