"""Workflows are started once per id, many at a time, and a failure is that workflow's alone."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import (
    Client,
    Interceptor,
    OutboundInterceptor,
    StartWorkflowInput,
    WorkflowHandle,
)

from penstock.integrations.temporal.client import connect
from penstock.integrations.temporal.start import NewWorkflow, start_workflow, start_workflows
from tests.integrations.temporal.scene import (
    executions,
    fresh,
    greeting_worker,
    greetings,
    started_event,
)
from tests.temporal_server import TemporalServer

TOO_LARGE = "x" * 3_000_000  # Temporal takes 2 MB.


async def test_every_workflow_of_a_batch_is_started(client: Client) -> None:
    queue, prefix = fresh("queue"), fresh("greet")
    batch = greetings(100, queue=queue, prefix=prefix)

    results = await start_workflows(client, batch, at_once=16)

    assert results == [None] * 100
    for each in batch:
        described = await client.get_workflow_handle(each.id).describe()
        assert (described.workflow_type, described.task_queue) == ("Greet", queue)


@pytest.mark.covers("A91")
async def test_starts_are_made_many_at_a_time(client: Client) -> None:
    """One after another, a batch of 500 would take longer than its cycle."""
    together = Together(8)
    counting = Client(client.service_client, interceptors=[together])
    batch = greetings(24, queue=fresh("queue"), prefix=fresh("greet"))

    async with asyncio.timeout(60):
        results = await start_workflows(counting, batch, at_once=8)

    assert results == [None] * 24
    assert together.most == 8


@pytest.mark.covers("A26", "A35")
async def test_a_running_id_counts_as_started_and_gets_no_second_run(client: Client) -> None:
    (workflow,) = greetings(1, queue=fresh("queue"), prefix=fresh("greet"))

    assert await start_workflows(client, [workflow]) == [None]
    assert await start_workflows(client, [workflow]) == [None]

    assert len(await executions(client, workflow.id)) == 1


@pytest.mark.covers("A87")
async def test_a_closed_id_counts_as_started_and_gets_no_second_run(client: Client) -> None:
    """An item is claimed again minutes after its start was lost; by then it has been executed."""
    (workflow,) = greetings(1, queue=fresh("queue"), prefix=fresh("greet"))
    async with greeting_worker(client, workflow.task_queue):
        assert await start_workflow(client, workflow)
        await client.get_workflow_handle(workflow.id).result()

        assert not await start_workflow(client, workflow)

    assert len(await executions(client, workflow.id)) == 1


async def test_a_delay_is_that_of_the_first_task(client: Client) -> None:
    delay = timedelta(hours=2)
    workflow = NewWorkflow(
        id=fresh("late"), type="Greet", task_queue=fresh("q"), args=["a"], start_delay=delay
    )

    await start_workflow(client, workflow)

    started = (await started_event(client, workflow.id)).workflow_execution_started_event_attributes
    assert started.first_workflow_task_backoff.ToTimedelta() == delay


@pytest.mark.covers("A27")
async def test_a_refused_start_is_an_error_of_that_workflow_alone(client: Client) -> None:
    queue, prefix = fresh("queue"), fresh("greet")
    batch = greetings(9, queue=queue, prefix=prefix)
    batch[4] = NewWorkflow(id=f"{prefix}-4", type="Greet", task_queue=queue, args=[TOO_LARGE])

    results = await start_workflows(client, batch, at_once=2)

    assert [place for place, failed in enumerate(results) if failed is not None] == [4]
    assert results[4] is not None
    assert results[4].kind == "refused"


async def test_a_server_that_is_down_fails_the_batch_and_loses_no_later_start(
    mortal_temporal: TemporalServer,
) -> None:
    client = await connect(mortal_temporal.target)
    batch = greetings(20, queue=fresh("queue"), prefix=fresh("greet"))
    mortal_temporal.kill()

    down = await start_workflows(client, batch, at_once=4)
    mortal_temporal.start()
    up = await start_workflows(client, batch, at_once=4)

    assert {failed.kind for failed in down if failed is not None} == {"unavailable"}
    assert None not in down
    assert up == [None] * 20


async def test_a_lazy_client_starts_before_there_is_a_server(
    mortal_temporal: TemporalServer,
) -> None:
    """A worker must start while Temporal is down: its other lanes have nothing to do with it."""
    mortal_temporal.kill()
    client = await connect(mortal_temporal.target, is_lazy=True)
    (workflow,) = greetings(1, queue=fresh("queue"), prefix=fresh("greet"))

    (down,) = await start_workflows(client, [workflow])
    mortal_temporal.start()
    (up,) = await start_workflows(client, [workflow])

    assert down is not None
    assert up is None


class Together(Interceptor):
    """Lets starts go on once this many are under way, and counts how many are at once."""

    def __init__(self, parties: int) -> None:
        self.barrier = asyncio.Barrier(parties)
        self.running = self.most = 0

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002
        return _Counting(next, self)


class _Counting(OutboundInterceptor):
    def __init__(self, following: OutboundInterceptor, together: Together) -> None:
        super().__init__(following)
        self.together = together

    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:  # noqa: A002
        self.together.running += 1
        self.together.most = max(self.together.most, self.together.running)
        await self.together.barrier.wait()
        try:
            return await super().start_workflow(input)
        finally:
            self.together.running -= 1
