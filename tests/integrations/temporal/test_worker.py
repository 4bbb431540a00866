"""A worker executes the workflows and activities of its queue until it is stopped."""

import asyncio

import pytest
from temporalio import activity
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus

from penstock.base.aio import alongside
from penstock.integrations.temporal.start import start_workflows
from penstock.integrations.temporal.worker import WorkerSpec, run_workers
from tests.integrations.temporal.scene import (
    SECOND,
    Greet,
    executions,
    fresh,
    greeting_worker,
    greetings,
)


async def test_started_workflows_are_executed(client: Client) -> None:
    queue = fresh("queue")
    batch = greetings(10, queue=queue, prefix=fresh("greet"))

    async with greeting_worker(client, queue):
        await start_workflows(client, batch)
        results = [await client.get_workflow_handle(each.id).result() for each in batch]

    assert results == [f"hello N{number}" for number in range(10)]
    (run,) = await executions(client, batch[0].id)
    assert run.status in (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.COMPLETED)
    history = await client.get_workflow_handle(batch[0].id).fetch_history()
    kinds = [each.event_type for each in history.events]
    assert kinds.count(EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED) == 1
    assert kinds[-1] == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED


@pytest.mark.covers("A61", "A62", "A63")
async def test_no_more_activities_run_at_once_than_the_worker_has_places(client: Client) -> None:
    """Temporal says of each of the others that it is scheduled and not started."""
    queue, places = fresh("queue"), Places()
    batch = greetings(5, queue=queue, prefix=fresh("greet"))
    spec = WorkerSpec(
        task_queue=queue,
        workflows=[Greet],
        activities=[places.upper],
        workflows_at_once=5,
        activities_at_once=2,
    )
    stop = asyncio.Event()

    async with asyncio.timeout(60), alongside(run_workers(client, [spec], stop, grace=SECOND)):
        await start_workflows(client, batch)
        while await count_pending(client, [each.id for each in batch]) < 5 or places.running < 2:
            pass
        places.go_on.set()
        results = [await client.get_workflow_handle(each.id).result() for each in batch]
        stop.set()

    assert results == [f"hello N{number}" for number in range(5)]
    assert places.most == 2


class Places:
    """Counts the activities that run at once; each waits until it is told to go on."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.go_on = asyncio.Event()

    @activity.defn(name="upper")
    async def upper(self, text: str) -> str:
        self.running += 1
        self.most = max(self.most, self.running)
        await self.go_on.wait()
        self.running -= 1
        return text.upper()


async def count_pending(client: Client, workflow_ids: list[str]) -> int:
    """Return how many activities Temporal knows that have not ended."""
    described = [await client.get_workflow_handle(each).describe() for each in workflow_ids]
    return sum(len(each.raw_description.pending_activities) for each in described)
