"""The schedules on Temporal follow the rows of the item types, and dispatch at their interval."""

import asyncio
from datetime import timedelta

import pytest

from penstock.compose.temporal_workers import make_keep
from penstock.domains.payments.temporal.schedules import ScheduleKeeper
from penstock.integrations.temporal.schedule import describe_schedule
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
