"""A schedule on Temporal that fires one workflow at an interval, changed as its caller says."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleDescription,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleUpdate,
    ScheduleUpdateInput,
)
from temporalio.service import RPCError, RPCStatusCode

from penstock.integrations.temporal.errors import translated
from penstock.integrations.temporal.start import NewWorkflow

# The least that Temporal accepts. A missed cycle has nothing to catch up: the next one takes more.
CATCH_UP = timedelta(seconds=10)
CALL_TIMEOUT = timedelta(seconds=10)

Change = Literal["created", "updated", "unchanged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalSchedule:
    """A schedule that starts `workflow` every `interval`, and never two at a time.

    Temporal appends the time of each start to the workflow's id.
    """

    id: str
    interval: timedelta
    workflow: NewWorkflow


async def sync_schedule(client: Client, wanted: IntervalSchedule) -> Change:
    """Create the schedule, or change it to what is wanted; a repeat changes nothing.

    A pause that a person has set on Temporal stays. Raises TemporalFailed.
    """
    with translated():
        try:
            await client.create_schedule(wanted.id, _schedule(wanted), rpc_timeout=CALL_TIMEOUT)
        except ScheduleAlreadyRunningError:
            return await _update(client, wanted)
    return "created"


async def remove_schedule(client: Client, schedule_id: str) -> bool:
    """Delete a schedule; return whether there was one. What it has started goes on."""
    with translated():
        try:
            await client.get_schedule_handle(schedule_id).delete(rpc_timeout=CALL_TIMEOUT)
        except RPCError as failure:
            if failure.status == RPCStatusCode.NOT_FOUND:
                return False
            raise
    return True


async def describe_schedule(client: Client, schedule_id: str) -> ScheduleDescription | None:
    """Return a schedule as Temporal has it, or None. Raises TemporalFailed."""
    with translated():
        try:
            return await client.get_schedule_handle(schedule_id).describe(rpc_timeout=CALL_TIMEOUT)
        except RPCError as failure:
            if failure.status == RPCStatusCode.NOT_FOUND:
                return None
            raise


def _schedule(wanted: IntervalSchedule) -> Schedule:
    workflow = wanted.workflow
    return Schedule(
        action=ScheduleActionStartWorkflow(
            workflow.type, args=workflow.args, id=workflow.id, task_queue=workflow.task_queue
        ),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=wanted.interval)]),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=CATCH_UP),
    )


async def _update(client: Client, wanted: IntervalSchedule) -> Change:
    new = _schedule(wanted)
    change: Change = "unchanged"

    def decide(found: ScheduleUpdateInput) -> ScheduleUpdate | None:
        nonlocal change
        old = found.description.schedule
        if _compared_fields(old) == _compared_fields(new):
            return None
        change = "updated"
        return ScheduleUpdate(schedule=replace(new, state=old.state))

    await client.get_schedule_handle(wanted.id).update(decide, rpc_timeout=CALL_TIMEOUT)
    return change


def _compared_fields(schedule: Schedule) -> tuple[object, ...]:
    """Return what is compared. Arguments are left out: they are encoded, and follow from the id."""
    action = schedule.action
    assert isinstance(action, ScheduleActionStartWorkflow)
    intervals = [each.every for each in schedule.spec.intervals]
    policy = schedule.policy
    return (
        *(action.workflow, action.id, action.task_queue),
        *(intervals, policy.overlap, policy.catchup_window),
    )
