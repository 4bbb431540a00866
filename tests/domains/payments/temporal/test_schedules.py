"""The schedules on Temporal follow the rows of the item types, and dispatch at their interval."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from temporalio.client import WorkflowExecutionStatus

from penstock.compose.temporal_workers import make_keep
from penstock.domains.payments.lanes import POLICY
from penstock.domains.payments.temporal.schedules import ScheduleKeeper
from penstock.integrations.temporal.schedule import describe_schedule
from tests.database import database_dsn, run_sql
from tests.domains.outbox.sending.ledger import Ledger
from tests.domains.payments.temporal.scene import PATIENCE, TemporalScene

SECOND = timedelta(seconds=1)


@pytest.fixture
def keeper(scene: TemporalScene) -> ScheduleKeeper:
    resources = scene.payments.app.resources
    return ScheduleKeeper(
        pool=resources.pool,
        keep=make_keep(scene.client, task_queue=scene.dispatch_queue),
        log=resources.log,
    )


@pytest.mark.covers("A60", "A93")
async def test_a_schedule_follows_the_row_of_its_item_type(
    scene: TemporalScene, keeper: ScheduleKeeper
) -> None:
    await scene.use("temporal_schedule")
    await scene.payments.set_lane(dispatch_interval=5 * SECOND)

    created = await keeper.look()
    unchanged = await keeper.look()
    await scene.payments.set_lane(dispatch_interval=9 * SECOND)
    updated = await keeper.look()

    found = await describe_schedule(scene.client, "dispatch-payment")
    assert found is not None
    assert [each.every for each in found.schedule.spec.intervals] == [9 * SECOND]
    await scene.use("temporal")
    removed = await keeper.look()
    assert (created, unchanged, updated) == ({"PAYMENT": "created"}, {}, {"PAYMENT": "updated"})
    assert removed == {"PAYMENT": "removed"}
    assert await describe_schedule(scene.client, "dispatch-payment") is None


@pytest.mark.covers("A9", "A37", "A98")
async def test_a_schedule_dispatches_cycle_after_cycle(
    scene: TemporalScene, *, keeper: ScheduleKeeper, ledger: Ledger
) -> None:
    payment_ids = scene.ids(6)
    await scene.payments.schedule(*payment_ids)
    await scene.use("temporal_schedule")
    await scene.payments.set_lane(dispatch_interval=SECOND, batch_size=3)

    async with scene.workers("dispatch", "exec"):
        await keeper.look()
        async with asyncio.timeout(PATIENCE):
            while set(await scene.payments.item_states()) != {"done"}:
                pass
        results = [await scene.result(each) for each in payment_ids]
        await scene.use("temporal")
        await keeper.look()

    assert results == ["PROCESSING"] * 6
    batches = {each["batch_id"] for each in await scene.payments.log()}
    assert len(batches) == 2
    await scene.payments.run()
    assert sorted(ledger.bookings) == payment_ids


@pytest.mark.covers("A45")
async def test_cycles_fail_while_the_database_is_down_and_go_on_afterwards(
    scene: TemporalScene, *, keeper: ScheduleKeeper, dsn: str
) -> None:
    """Each cycle tries anew; nothing of an earlier one is repeated, and nobody has to help."""
    (payment_id,) = scene.ids(1)
    await scene.use("temporal_schedule")
    await scene.payments.set_lane(dispatch_interval=SECOND)

    async with scene.workers("dispatch"), asyncio.timeout(PATIENCE):
        await keeper.look()
        async with database_down(dsn):
            while not (failed := await cycles(scene, WorkflowExecutionStatus.FAILED)):
                pass
        await scene.payments.schedule(payment_id)
        while not await scene.is_started(payment_id):
            pass
        while not (completed := await cycles(scene, WorkflowExecutionStatus.COMPLETED)):
            pass  # Temporal's list is behind its histories.
        await scene.use("temporal")
        await keeper.look()

    assert completed
    assert not failed & completed
    assert await scene.payments.item_states() == ["done"]


@pytest.mark.covers("A86")
async def test_the_default_pace_takes_83_minutes_for_500_000_payments(
    scene: TemporalScene, keeper: ScheduleKeeper
) -> None:
    """The interval is that of the schedule on Temporal, and the jitter that of each start."""
    payment_ids = scene.ids(30)
    await scene.payments.schedule(*payment_ids)
    await scene.use("temporal_schedule")
    await scene.payments.set_lane(**POLICY)

    await keeper.look()
    found = await describe_schedule(scene.client, "dispatch-payment")
    await scene.use("temporal")
    await keeper.look()
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
