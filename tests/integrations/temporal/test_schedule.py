"""A schedule exists once, follows what is wanted, and never runs twice at a time."""

from datetime import timedelta

import pytest
from temporalio.client import (
    Client,
    ScheduleActionStartWorkflow,
    ScheduleOverlapPolicy,
)

from penstock.integrations.temporal.schedule import (
    CATCH_UP,
    IntervalSchedule,
    describe_schedule,
    remove_schedule,
    sync_schedule,
)
from penstock.integrations.temporal.start import NewWorkflow
from tests.integrations.temporal.scene import fresh

HOUR = timedelta(hours=1)


def hourly(schedule_id: str, interval: timedelta = HOUR) -> IntervalSchedule:
    workflow = NewWorkflow(
        id=f"{schedule_id}-run", type="Greet", task_queue=fresh("queue"), args=["you"]
    )
    return IntervalSchedule(id=schedule_id, interval=interval, workflow=workflow)


@pytest.mark.covers("A60")
async def test_keeping_a_schedule_again_changes_nothing(client: Client) -> None:
    wanted = hourly(fresh("schedule"))

    assert await sync_schedule(client, wanted) == "created"
    assert await sync_schedule(client, wanted) == "unchanged"

    found = await describe_schedule(client, wanted.id)
    assert found is not None
    assert found.info.last_updated_at is None


@pytest.mark.covers("A33")
async def test_a_schedule_skips_overlaps_and_catches_up_little(client: Client) -> None:
    wanted = hourly(fresh("schedule"))

    await sync_schedule(client, wanted)

    found = await describe_schedule(client, wanted.id)
    assert found is not None
    schedule = found.schedule
    assert [each.every for each in schedule.spec.intervals] == [HOUR]
    assert schedule.policy.overlap == ScheduleOverlapPolicy.SKIP
    assert schedule.policy.catchup_window == CATCH_UP
    assert isinstance(schedule.action, ScheduleActionStartWorkflow)
    assert schedule.action.workflow == "Greet"


@pytest.mark.covers("A93")
async def test_a_new_interval_reaches_the_schedule_and_keeps_a_pause(client: Client) -> None:
    """Whoever paused a schedule on Temporal must not find it running after a restart."""
    wanted = hourly(fresh("schedule"))
    await sync_schedule(client, wanted)
    await client.get_schedule_handle(wanted.id).pause(note="by hand")
    changed = IntervalSchedule(id=wanted.id, interval=2 * HOUR, workflow=wanted.workflow)

    assert await sync_schedule(client, changed) == "updated"

    found = await describe_schedule(client, wanted.id)
    assert found is not None
    assert [each.every for each in found.schedule.spec.intervals] == [2 * HOUR]
    assert found.schedule.state.paused


async def test_a_removed_schedule_is_gone_and_may_be_removed_again(client: Client) -> None:
    wanted = hourly(fresh("schedule"))
    await sync_schedule(client, wanted)

    assert await remove_schedule(client, wanted.id)
    assert not await remove_schedule(client, wanted.id)

    assert await describe_schedule(client, wanted.id) is None
