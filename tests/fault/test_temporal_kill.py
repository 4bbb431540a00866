"""Workers and Temporal that die with kill -9: each payment has one run, and is paid once."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest

from penstock.base.aio import alongside
from penstock.base.clock import FakeClock
from penstock.postgres.embedded import embedded_server
from penstock.postgres.errors import DatabaseAway
from penstock.postgres.pool import database_away
from tests.domains.outbox.sending.ledger import Ledger, keeping
from tests.domains.payments.temporal.scene import TemporalScene, opened_on_temporal
from tests.e2e.command import clean_environment
from tests.fault.processes import ForkServer
from tests.fault.waiting import until
from tests.temporal_server import TemporalServer

PATIENCE = 60.0  # Seconds; a busy machine starts a process in a few.
LEASE = timedelta(seconds=2)
COUNT = 8


@pytest.fixture
async def ledger() -> AsyncGenerator[Ledger]:
    async with keeping(Ledger()) as kept:
        yield kept


@pytest.fixture
async def scene(
    dsn: str, *, clock: FakeClock, ledger: Ledger, temporal: TemporalServer
) -> AsyncGenerator[TemporalScene]:
    async with opened_on_temporal(dsn, clock, ledger, target=temporal.target) as opened:
        await opened.payments.set_lane(lease=LEASE)
        yield opened


class Die(Protocol):
    """Runs a worker that is killed after its claim, or between the starts and their mark."""

    async def __call__(self, kind: str, label: str) -> None: ...


@pytest.fixture
def die(
    scene: TemporalScene, *, forks: ForkServer, temporal: TemporalServer, tmp_path: Path
) -> Die:
    async def run(kind: str, label: str) -> None:
        worker = await forks.start(
            *("tests.fault.temporal_worker", kind, label),
            *(scene.payments.app.address, temporal.target, scene.dispatch_queue),
            log=tmp_path / "worker.log",
        )
        async with asyncio.timeout(PATIENCE):
            assert await worker.wait() == -signal.SIGKILL

    return run


async def is_done(scene: TemporalScene) -> bool:
    return set(await scene.payments.item_states()) == {"done"}


async def assert_paid_once(scene: TemporalScene, payment_ids: list[str], ledger: Ledger) -> None:
    for each in payment_ids:
        assert len(await scene.runs(each)) == 1
    await scene.payments.run()
    assert sorted(ledger.bookings) == payment_ids


@pytest.mark.parametrize("label", ["in_preload", "after_claim"])
async def test_a_worker_that_dies_after_its_claim_pays_once(
    scene: TemporalScene, *, ledger: Ledger, die: Die, label: str
) -> None:
    """Nothing was started: the lease gives the payments back to another worker."""
    payment_ids = scene.ids(COUNT)
    await scene.payments.schedule(*payment_ids)
    app, stop = scene.payments.app, asyncio.Event()
    await die("worker", label)
    assert set(await scene.payments.item_states()) <= {"leased", "ready"}
    assert not await scene.is_started(payment_ids[0])

    async with (
        scene.workers("exec"),
        alongside(app.run_sweeper(), app.run_worker(stop, lanes=["payment"])),
    ):
        await until(lambda: is_done(scene), within=PATIENCE)
        results = [await scene.result(each) for each in payment_ids]
        stop.set()

    assert results == ["PROCESSING"] * COUNT
    await assert_paid_once(scene, payment_ids, ledger)


async def test_a_dispatcher_that_dies_after_its_claim_pays_once(
    scene: TemporalScene, *, ledger: Ledger, die: Die
) -> None:
    payment_ids = scene.ids(COUNT)
    await scene.payments.schedule(*payment_ids)
    await scene.use("temporal_schedule")
    await scene.begin_dispatch()
    await die("dispatch", "after_claim")
    assert not await scene.is_started(payment_ids[0])

    async with scene.workers("dispatch", "exec"), alongside(scene.payments.app.run_sweeper()):
        await until(lambda: _is_ready(scene), within=PATIENCE)
        assert await scene.dispatch() == COUNT
        results = [await scene.result(each) for each in payment_ids]

    assert results == ["PROCESSING"] * COUNT
    await assert_paid_once(scene, payment_ids, ledger)


@pytest.mark.covers("A42", "A87")
async def test_a_worker_that_dies_between_start_and_mark_pays_once(
    scene: TemporalScene, *, ledger: Ledger, die: Die
) -> None:
    """The executions have closed when the payments are claimed again."""
    payment_ids = scene.ids(COUNT)
    await scene.payments.schedule(*payment_ids)
    app, stop = scene.payments.app, asyncio.Event()
    async with scene.workers("exec"):
        await die("worker", "after_start")
        results = [await scene.result(each) for each in payment_ids]
    assert results == ["PROCESSING"] * COUNT
    assert set(await scene.payments.item_states()) <= {"leased", "ready"}

    async with alongside(app.run_sweeper(), app.run_worker(stop, lanes=["payment"])):
        await until(lambda: is_done(scene), within=PATIENCE)
        stop.set()

    await assert_paid_once(scene, payment_ids, ledger)
    attempts = await app.pool.fetch("SELECT outcome FROM penstock.attempt ORDER BY attempt")
    assert [row["outcome"] for row in attempts[: 2 * COUNT]].count("lost") == COUNT


@pytest.mark.covers("A42")
async def test_a_dispatcher_that_dies_between_start_and_mark_pays_once(
    scene: TemporalScene, *, ledger: Ledger, die: Die
) -> None:
    payment_ids = scene.ids(COUNT)
    await scene.payments.schedule(*payment_ids)
    await scene.use("temporal_schedule")
    async with scene.workers("exec"):
        await scene.begin_dispatch()
        await die("dispatch", "after_start")
        results = [await scene.result(each) for each in payment_ids]
    assert results == ["PROCESSING"] * COUNT

    async with scene.workers("dispatch"), alongside(scene.payments.app.run_sweeper()):
        await until(lambda: _is_ready(scene), within=PATIENCE)
        assert await scene.dispatch() == COUNT

    assert await is_done(scene)
    await assert_paid_once(scene, payment_ids, ledger)


async def _is_ready(scene: TemporalScene) -> bool:
    return set(await scene.payments.item_states()) == {"ready"}


async def test_temporal_and_its_workers_die_and_each_payment_is_paid_once(
    dsn: str,
    *,
    clock: FakeClock,
    ledger: Ledger,
    mortal_temporal: TemporalServer,
    forks: ForkServer,
    tmp_path: Path,
) -> None:
    """Executions go on where they stopped, with another worker and a server that has restarted."""
    target = mortal_temporal.target
    environment = {
        "PENSTOCK_DATABASE_URL": dsn,
        "PENSTOCK_DOMAINS": "webhooks mail outbox payments",
        "TEMPORAL_TARGET": target,
    }
    async with opened_on_temporal(dsn, clock, ledger, target=target) as scene:
        payment_ids = scene.ids(4 * COUNT)
        await scene.payments.schedule(*payment_ids)
        scene.exec_queue = "payment-exec-task-queue"
        await scene.use("temporal")
        start = partial(
            forks.start,
            *("penstock.cli", "temporal", "worker", "--only", "exec"),
            log=tmp_path / "workers.log",
            environment=clean_environment(environment),
            folder=tmp_path,
        )

        first = await start()
        await scene.payments.run_payments()
        await until(lambda: _has_accepted(scene), within=PATIENCE)
        await first.end()
        mortal_temporal.kill()
        mortal_temporal.start()
        second = await start()
        async with asyncio.timeout(2 * PATIENCE):
            results = [await scene.result(each) for each in payment_ids]
        second.send(signal.SIGTERM)
        assert await second.wait() == 0

        assert set(results) == {"PROCESSING"}
        await assert_paid_once(scene, sorted(payment_ids), ledger)


@pytest.mark.covers("A45")
async def test_postgres_is_killed_and_each_payment_is_paid_once(
    tmp_path: Path, *, clock: FakeClock, ledger: Ledger, temporal: TemporalServer
) -> None:
    """Between claims, starts and steps: what was started is recognised, and steps are repeated."""
    async with (
        embedded_server(tmp_path / "data") as server,
        opened_on_temporal(server.dsn, clock, ledger, target=temporal.target) as scene,
    ):
        await scene.payments.set_lane(lease=LEASE, batch_size=COUNT)
        await scene.use("temporal")
        payment_ids = scene.ids(4 * COUNT)
        await scene.payments.schedule(*payment_ids)
        app, stop = scene.payments.app, asyncio.Event()

        async with (
            scene.workers("exec"),
            alongside(app.run_sweeper(), app.run_worker(stop, lanes=["payment"])),
        ):
            for goal in (1, 2 * COUNT):
                await until(lambda goal=goal: _has_executed(scene, goal), within=PATIENCE)
                assert server.pid is not None
                os.kill(server.pid, signal.SIGKILL)
            async with asyncio.timeout(2 * PATIENCE):
                results = [await scene.result(each) for each in payment_ids]
            await until(lambda: _has_executed(scene, 4 * COUNT), within=PATIENCE)
            stop.set()

        assert set(results) == {"PROCESSING"}
        await assert_paid_once(scene, sorted(payment_ids), ledger)


async def _has_executed(scene: TemporalScene, count: int) -> bool:
    try:
        with database_away():
            return count <= await scene.payments.app.pool.fetchval(
                "SELECT count(*) FROM penstock.payment WHERE status <> 'SCHEDULED'"
            )
    except DatabaseAway:
        return False


async def _has_accepted(scene: TemporalScene) -> bool:
    """Return whether an execution has begun."""
    return bool(
        await scene.payments.app.pool.fetchval(
            "SELECT EXISTS (SELECT FROM penstock.payment WHERE status <> 'SCHEDULED')"
        )
    )
