"""The schedules on Temporal follow the rows of the item types, and dispatch at their interval."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from structlog.testing import capture_logs
from temporalio.client import WorkflowExecutionStatus

from penstock.base.aio import spawn
from penstock.base.errors import Unavailable
from penstock.compose.temporal_workers import make_sync
from penstock.domains.payments.lanes import POLICY
from penstock.domains.payments.temporal.schedules import (
    LOOKS_PER_COMPARISON,
    ItemTypeRow,
    ScheduleSync,
)
from penstock.integrations.temporal.schedule import describe_schedule, remove_schedule
from penstock.kernel.heartbeat import list_workers
from penstock.kernel.why import why_lane
from penstock.postgres.pool import Pool
from tests.database import database_dsn, run_sql
from tests.domains.outbox.sending.ledger import Ledger
from tests.domains.payments.temporal.scene import PATIENCE, TemporalScene
from tests.fault.waiting import POLL_SECONDS, pause

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


@pytest.fixture
def schedules(scene: TemporalScene) -> ScheduleSync:
    resources = scene.payments.app.resources
    return ScheduleSync(
        pool=resources.pool,
        sync=make_sync(scene.client, task_queue=scene.dispatch_queue),
        log=resources.log,
    )


@pytest.mark.covers("A60", "A93")
async def test_a_schedule_follows_the_row_of_its_item_type(
    scene: TemporalScene, schedules: ScheduleSync
) -> None:
    await scene.use("temporal_schedule")
    await scene.payments.set_lane(dispatch_interval=5 * SECOND)

    created = await schedules.look()
    unchanged = await schedules.look()
    await scene.payments.set_lane(dispatch_interval=9 * SECOND)
    updated = await schedules.look()

    found = await describe_schedule(scene.client, "dispatch-payment")
    assert found is not None
    assert [each.every for each in found.schedule.spec.intervals] == [9 * SECOND]
    await scene.use("temporal")
    removed = await schedules.look()
    assert (created, unchanged, updated) == ({"PAYMENT": "created"}, {}, {"PAYMENT": "updated"})
    assert removed == {"PAYMENT": "removed"}
    assert await describe_schedule(scene.client, "dispatch-payment") is None


async def test_a_schedule_that_was_deleted_on_temporal_is_created_again(
    scene: TemporalScene, schedules: ScheduleSync
) -> None:
    """Without it nothing is dispatched, and no row changes."""
    await scene.use("temporal_schedule")
    await scene.payments.set_lane(dispatch_interval=HOUR)
    await schedules.look()
    await remove_schedule(scene.client, "dispatch-payment")

    with capture_logs() as lines:
        looks = [await schedules.look() for _ in range(2 * LOOKS_PER_COMPARISON)]

    done = [each for each in looks if each]
    assert done == [{"PAYMENT": "created"}, {"PAYMENT": "unchanged"}]
    assert [(each["event"], each["log_level"]) for each in lines] == [
        ("schedule.restored", "warning")
    ]
    assert await describe_schedule(scene.client, "dispatch-payment") is not None
    await remove_schedule(scene.client, "dispatch-payment")


async def test_a_schedule_that_temporal_refuses_does_not_hold_back_others(
    scene: TemporalScene, schedules: ScheduleSync
) -> None:
    await scene.use("temporal_schedule")
    await scene.payments.set_lane(dispatch_interval=HOUR)
    await scene.add_item_type("FEE", workflow="PaymentExecWorkflow", queue=scene.exec_queue)
    sync = schedules.sync

    async def refuse_fees(row: ItemTypeRow) -> str:
        if row.item_type == "FEE":
            raise Unavailable("the schedule was refused")
        return await sync(row)

    schedules.sync = refuse_fees
    with pytest.raises(Unavailable):
        await schedules.look()
    first = await describe_schedule(scene.client, "dispatch-payment")
    schedules.sync = sync
    done = await schedules.look()

    assert first is not None
    assert done == {"FEE": "created"}
    for each in ("dispatch-payment", "dispatch-fee"):
        await remove_schedule(scene.client, each)


async def test_a_lane_that_a_schedule_dispatches_has_a_worker(
    scene: TemporalScene, schedules: ScheduleSync
) -> None:
    """`penstock lane why` said that no worker runs it, and a person would have started one."""
    pool, stop = scene.payments.app.pool, asyncio.Event()
    await scene.use("temporal_schedule")
    before = await codes(pool)

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        spawn(group, schedules.run(stop))
        while "no_worker" in await codes(pool):
            await pause(POLL_SECONDS)
        (running,) = await list_workers(pool, lane="payment")
        stop.set()

    assert "no_worker" in before
    assert running.name.startswith("temporal:")
    assert await list_workers(pool) == []
    await remove_schedule(scene.client, "dispatch-payment")


@pytest.mark.covers("A9", "A37", "A98")
async def test_a_schedule_dispatches_cycle_after_cycle(
    scene: TemporalScene, *, schedules: ScheduleSync, ledger: Ledger
) -> None:
    payment_ids = scene.ids(6)
    await scene.payments.schedule(*payment_ids)
    await scene.use("temporal_schedule")
    await scene.payments.set_lane(dispatch_interval=SECOND, batch_size=3)

    async with scene.workers("dispatch", "exec"):
        await schedules.look()
        async with asyncio.timeout(PATIENCE):
            while set(await scene.payments.item_states()) != {"done"}:
                await pause(POLL_SECONDS)
        results = [await scene.result(each) for each in payment_ids]
        await scene.use("temporal")
        await schedules.look()

    assert results == ["PROCESSING"] * 6
    batches = {each["batch_id"] for each in await scene.payments.log()}
    assert len(batches) == 2
    await scene.payments.run()
    assert sorted(ledger.bookings) == payment_ids


@pytest.mark.covers("A45")
async def test_cycles_fail_while_the_database_is_down_and_go_on_afterwards(
    scene: TemporalScene, *, schedules: ScheduleSync, ledger: Ledger, dsn: str
) -> None:
    """Each cycle tries anew; nothing of an earlier one is repeated, and nobody has to help."""
    waiting, later = payment_ids = scene.ids(2)
    await scene.payments.schedule(waiting)
    await scene.use("temporal_schedule")
    await scene.payments.set_lane(dispatch_interval=SECOND)

    async with scene.workers("dispatch", "exec"), asyncio.timeout(PATIENCE):
        await schedules.look()
        async with database_down(dsn):
            while not (failed := await cycles(scene, WorkflowExecutionStatus.FAILED)):
                await pause(POLL_SECONDS)
        await scene.payments.schedule(later)
        for each in payment_ids:
            while not await scene.is_started(each):
                await pause(POLL_SECONDS)
            assert await scene.result(each) == "PROCESSING"
        while not (completed := await cycles(scene, WorkflowExecutionStatus.COMPLETED)):
            await pause(POLL_SECONDS)  # Temporal's list is behind its histories.
        await scene.use("temporal")
        await schedules.look()

    assert completed
    assert not failed & completed
    for each in payment_ids:
        assert len(await scene.runs(each)) == 1
    await scene.payments.run()
    assert sorted(ledger.bookings) == payment_ids


@pytest.mark.covers("A86")
async def test_the_default_pace_takes_83_minutes_for_500_000_payments(
    scene: TemporalScene, schedules: ScheduleSync
) -> None:
    """The interval is that of the schedule on Temporal, and the jitter that of each start."""
    payment_ids = scene.ids(30)
    await scene.payments.schedule(*payment_ids)
    await scene.use("temporal_schedule")
    await scene.payments.set_lane(**POLICY)

    await schedules.look()
    found = await describe_schedule(scene.client, "dispatch-payment")
    await scene.use("temporal")
    await schedules.look()
    await scene.use("temporal_schedule")
    async with scene.workers("dispatch"):
        await scene.dispatch()

    assert found is not None
    (interval,) = [each.every for each in found.schedule.spec.intervals]
    batch_size = await scene.payments.app.pool.fetchval(
        "SELECT batch_size FROM penstock.exec_rate_config WHERE item_type = 'PAYMENT'"
    )
    assert 500_000 / batch_size * interval == timedelta(minutes=83, seconds=20)
    delays = [await scene.start_delay(each) for each in payment_ids]
    assert max(delays) <= 4 * SECOND
    assert max(delays) - min(delays) > SECOND


async def codes(pool: Pool) -> list[str]:
    """Return the reasons why the lane of payments runs nothing."""
    return [each.code for each in await why_lane(pool, "payment")]


@asynccontextmanager
async def database_down(dsn: str) -> AsyncGenerator[None]:
    """End all connections to a database and refuse new ones while the body runs."""
    server = database_dsn(dsn, "postgres")
    name = dsn.split("?", maxsplit=1)[0].rpartition("/")[2]
    await run_sql(server, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    await run_sql(
        server, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    )
    try:
        yield
    finally:
        await run_sql(server, f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")


async def cycles(scene: TemporalScene, status: WorkflowExecutionStatus) -> set[str]:
    """Return the cycles of this test's queue that have ended in this way, from Temporal's list."""
    query = f"TaskQueue = '{scene.dispatch_queue}'"
    return {each.id async for each in scene.client.list_workflows(query) if each.status == status}
