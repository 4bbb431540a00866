"""A payment on Temporal: two brief workflows with a row between them, and nothing that sleeps."""

from datetime import UTC, datetime

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowExecutionStatus

from tests.domains.payments.temporal.scene import TemporalScene, activities_of
from tests.domains.payments.temporal.test_init import request, start_init

LATER = datetime(2031, 5, 5, 16, tzinfo=UTC)
TIMERS = {EventType.EVENT_TYPE_TIMER_STARTED, EventType.EVENT_TYPE_TIMER_FIRED}
EXECUTION = ["executePayment", "postProcess", "sendNotifications"]


@pytest.fixture(autouse=True)
async def scheduled(scene: TemporalScene) -> None:
    await scene.use("temporal_schedule")


@pytest.mark.covers("A2")
async def test_two_workflows_are_joined_by_a_row_of_the_queue(scene: TemporalScene) -> None:
    (payment_id,) = scene.ids(1)

    async with scene.workers("init"):
        init = await start_init(scene, payment_id, request(payment_id, execute_at=None))
        await scene.client.get_workflow_handle(init).result()
    between = await queue_row(scene, payment_id)
    is_started = await scene.is_started(payment_id)
    async with scene.workers("dispatch", "exec"):
        await scene.dispatch()
        await scene.result(payment_id)
    after = await queue_row(scene, payment_id)

    assert between == ("READY", init, None)
    assert not is_started
    assert after == ("DISPATCHED", init, f"exec-payment-{payment_id}")
    for workflow_id in (init, f"exec-payment-{payment_id}"):
        described = await scene.client.get_workflow_handle(workflow_id).describe()
        assert described.status == WorkflowExecutionStatus.COMPLETED
    assert activities_of(await scene.history(f"exec-payment-{payment_id}")) == EXECUTION


@pytest.mark.covers("A3")
async def test_a_payment_that_waits_leaves_nothing_open_on_temporal(scene: TemporalScene) -> None:
    """A million of them must cost Temporal nothing until they are due."""
    payment_ids = scene.ids(3)

    async with scene.workers("init", "dispatch"):
        inits = [
            await start_init(scene, each, request(each, execute_at=LATER.isoformat()))
            for each in payment_ids
        ]
        for each in inits:
            await scene.client.get_workflow_handle(each).result()
        cycle = await scene.begin_dispatch()
        claimed = await scene.client.get_workflow_handle(cycle).result()

    assert claimed == 0
    assert [(await queue_row(scene, each))[0] for each in payment_ids] == ["READY"] * 3
    assert [await scene.is_started(each) for each in payment_ids] == [False] * 3
    for workflow_id in (*inits, cycle):
        described = await scene.client.get_workflow_handle(workflow_id).describe()
        assert described.status == WorkflowExecutionStatus.COMPLETED
        assert not TIMERS & {each.event_type for each in await scene.history(workflow_id)}


@pytest.mark.covers("A84")
async def test_no_more_workflows_are_open_than_one_cycle_starts(scene: TemporalScene) -> None:
    """A cycle starts a batch at most, and the executions of a batch are over before the next."""
    payment_ids = scene.ids(9)
    await scene.payments.schedule(*payment_ids)
    default = await scene.payments.app.pool.fetchrow(
        "SELECT batch_size FROM penstock.exec_rate_config WHERE item_type = 'PAYMENT'"
    )
    await scene.payments.set_lane(batch_size=4)
    opened = []

    for _ in range(3):
        async with scene.workers("dispatch"):
            await scene.dispatch()
        opened.append(await open_executions(scene, payment_ids))
        async with scene.workers("exec"):
            for each in opened[-1]:
                await scene.result(each)

    assert default is not None
    assert default["batch_size"] == 500
    assert [len(each) for each in opened] == [4, 4, 1]
    assert sorted(each for batch in opened for each in batch) == payment_ids


@pytest.mark.covers("A34")
async def test_cycles_at_the_same_moment_dispatch_different_payments(scene: TemporalScene) -> None:
    payment_ids = scene.ids(12)
    await scene.payments.schedule(*payment_ids)
    await scene.payments.set_lane(batch_size=4)

    async with scene.workers("dispatch"):
        cycles = [await scene.begin_dispatch() for _ in range(3)]
        started = [await scene.client.get_workflow_handle(each).result() for each in cycles]

    assert started == [4, 4, 4]
    batches: dict[str, list[str]] = {}
    for row in await scene.payments.log():
        if row["payment_id"] is not None:
            batches.setdefault(row["batch_id"], []).append(row["payment_id"])
    assert [len(each) for each in batches.values()] == [4, 4, 4]
    assert sorted(each for batch in batches.values() for each in batch) == sorted(payment_ids)
    for each in payment_ids:
        assert len(await scene.runs(each)) == 1


async def open_executions(scene: TemporalScene, payment_ids: list[str]) -> list[str]:
    """Return the payments whose workflow is open, as Temporal describes it."""
    found = []
    for each in payment_ids:
        if await queue_row(scene, each) == ("READY", None, None):
            continue
        described = await scene.client.get_workflow_handle(f"exec-payment-{each}").describe()
        if described.status == WorkflowExecutionStatus.RUNNING:
            found.append(each)
    return found


async def queue_row(scene: TemporalScene, payment_id: str) -> tuple[str, str | None, str | None]:
    row = await scene.payments.app.pool.fetchrow(
        "SELECT queue_status, init_workflow_id, exec_workflow_id FROM penstock.payment_exec_queue"
        " WHERE payment_id = $1",
        payment_id,
    )
    assert row is not None
    return row["queue_status"], row["init_workflow_id"], row["exec_workflow_id"]
