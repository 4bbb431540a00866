"""Workers as processes: a shared lane, signals, and a database that is unavailable."""

import asyncio
import os
import select
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from httpx import AsyncClient

from penstock.kernel.api_keys import create_key
from penstock.kernel.enqueue import enqueue
from penstock.kernel.inspect import balance
from penstock.kernel.item import NewItem
from penstock.kernel.lane import create_lane
from penstock.postgres.cluster import launch
from penstock.postgres.embedded import running, start, stop
from penstock.postgres.pool import Pool, connect
from tests.database import wait_until_up
from tests.e2e.command import WAIT_SECONDS, penstock, penstock_unread
from tests.fault.waiting import POLL_SECONDS, pause

WORKER = ("worker", "--app", "gated:app")


def at(dsn: str) -> dict[str, str]:
    return {"PENSTOCK_DATABASE_URL": dsn}


async def enqueue_one(dsn: str, lane: str, payload: int) -> None:
    db = await connect(dsn)
    await enqueue(db, lane, NewItem(payload=payload))
    await db.close()


def kill_and_wait(pid: int) -> None:
    """Kill a process that is not a child of this one, and wait until it has ended."""
    process = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    select.select([process], [], [])
    os.close(process)


async def test_two_workers_share_a_lane(
    dsn: str, db: Pool, *, folder: Path, gate: Callable[[int], Path]
) -> None:
    """Each runs one item at the same time, and no item runs twice."""
    gates = [gate(1), gate(2)]
    with (
        penstock(*WORKER, folder=folder, environment=at(dsn)) as one,
        penstock(*WORKER, "--lane", "gated", folder=folder, environment=at(dsn)) as two,
    ):
        one.wait_for("worker.started")
        two.wait_for("worker.started")

        await enqueue_one(dsn, "gated", 1)
        await enqueue_one(dsn, "gated", 2)
        started = {worker.wait_for(r"started (\d) in").group(1) for worker in (one, two)}
        for each in gates:
            each.write_bytes(b"")
        ended = {worker.wait_for(r"ended (\d)").group(1) for worker in (one, two)}

        assert started == ended == {"1", "2"}
        assert [worker.stop() for worker in (one, two)] == [0, 0]
    counted = await balance(db)
    assert (counted.accepted, counted.done) == (2, 2)


def test_a_lane_without_a_handler_is_refused(dsn: str, folder: Path) -> None:
    with penstock(*WORKER, "--lane", "nowhere", folder=folder, environment=at(dsn)) as worker:
        assert worker.wait() == 2

    assert "no handler for nowhere" in worker.lines[-1]


async def test_sigterm_returns_claimed_items_that_have_not_started(
    dsn: str, db: Pool, *, folder: Path
) -> None:
    """Items that wait for their start must neither delay the stop nor lose an attempt."""
    # If the stop waited for this grace, the test would time out.
    environment = at(dsn) | {"PENSTOCK_SHUTDOWN_GRACE_SECONDS": "600"}
    with penstock(*WORKER, folder=folder, environment=environment) as worker:
        worker.wait_for("worker.started")
        await enqueue_one(dsn, "later", 1)
        await until_leased(db)

        assert worker.stop() == 0

    counted = await balance(db)
    assert (counted.ready, counted.leased) == (1, 0)
    assert await db.fetchval("SELECT count(*) FROM penstock.attempt") == 0


@pytest.mark.parametrize("verb", [("worker",), ("up", "--port", "0")])
async def test_a_process_whose_output_nobody_reads_works_and_stops(
    dsn: str, db: Pool, *, folder: Path, verb: tuple[str, ...]
) -> None:
    """The reader of a log may end first, as `head` does: only the lines are lost."""
    async with db.acquire() as connection:
        await create_lane(connection, "open", who="test")
    await enqueue_one(dsn, "open", 1)
    command = (*verb, "--app", "gated:app")
    environment = at(dsn) | {"PENSTOCK_LOG_LEVEL": "debug"}

    with penstock_unread(*command, folder=folder, environment=environment) as process:
        await until_done(db)
        process.send_signal(signal.SIGTERM)

        assert process.wait(timeout=WAIT_SECONDS) == 0

    assert await db.fetchval("SELECT count(*) FROM penstock.attempt") == 1


async def until_done(db: Pool) -> None:
    """Wait until a worker has settled an item."""
    async with asyncio.timeout(WAIT_SECONDS):
        while (await balance(db)).done == 0:
            await pause(POLL_SECONDS)


async def until_leased(db: Pool) -> None:
    """Wait until a worker holds an item."""
    async with asyncio.timeout(WAIT_SECONDS):
        while (await balance(db)).leased == 0:
            await pause(POLL_SECONDS)


async def test_a_worker_waits_for_a_database_that_is_unavailable_at_start(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Processes of a deployment start in any order."""
    data_dir = tmp_path_factory.mktemp("late")
    server = start(data_dir)
    stop(server)

    with penstock(*WORKER, folder=folder, environment=at(server.dsn)) as worker:
        worker.wait_for(r"database.awaited.*try=2")
        with running(data_dir) as late:
            worker.wait_for("worker.started")
            await enqueue_one(late.dsn, "open", 1)
            worker.wait_for("handled 1")
            assert worker.stop() == 0
    assert not any("Traceback" in line for line in worker.lines)


async def test_a_worker_reconnects_after_a_crash_of_the_database(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The work continues without a restart of the process."""
    with (
        running(tmp_path_factory.mktemp("killed")) as server,
        penstock(*WORKER, folder=folder, environment=at(server.dsn)) as worker,
    ):
        worker.wait_for("worker.started")
        await enqueue_one(server.dsn, "open", 1)
        worker.wait_for("handled 1")

        killed = server.pid
        assert killed is not None
        kill_and_wait(killed)
        worker.wait_for("listener.lost")
        launch(server.cluster, server.options)
        await wait_until_up(server.dsn)
        await enqueue_one(server.dsn, "open", 2)

        worker.wait_for("handled 2")
        assert worker.stop() == 0
    assert not any("Traceback" in line for line in worker.lines)


async def test_a_worker_stops_although_the_database_is_unavailable(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Nothing can be settled then; the leases expire."""
    grace = {"PENSTOCK_SHUTDOWN_GRACE_SECONDS": "1"}
    with running(tmp_path_factory.mktemp("gone")) as server:
        environment = at(server.dsn) | grace
        with penstock(*WORKER, folder=folder, environment=environment) as worker:
            worker.wait_for("worker.started")
            stop(server)
            worker.wait_for("listener.lost")

            assert worker.stop() == 0


@pytest.mark.covers("B59")
async def test_a_worker_serves_its_own_metrics_and_nothing_else(
    dsn: str, db: Pool, *, folder: Path
) -> None:
    """It needs no --app: the built-in lanes are enough."""
    async with db.acquire() as connection:
        _, token = await create_key(connection, "scraper", ["read"], who="test")
    with penstock("worker", "--metrics-port", "0", folder=folder, environment=at(dsn)) as worker:
        url = worker.wait_for(r"metrics at (http://127.0.0.1:\d+)/metrics").group(1)
        async with AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {token}"}
        ) as scraper:
            metrics = await scraper.get("/metrics")
            health = await scraper.get("/health")
            items = await scraper.get("/lanes")

        assert worker.stop() == 0
    assert metrics.status_code == health.status_code == 200
    assert 'outbox_pending_depth{lane="penstock.webhooks"} 0.0' in metrics.text
    assert items.status_code == 404
