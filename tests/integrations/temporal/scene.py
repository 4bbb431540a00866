"""Workflows and names for tests. The server is shared, so every test takes names of its own."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from secrets import token_hex

from temporalio import activity, workflow
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowExecution

from penstock.base.aio import alongside
from penstock.integrations.temporal.start import NewWorkflow
from penstock.integrations.temporal.worker import WorkerSpec, run_workers
from tests.fault.waiting import POLL_SECONDS, pause

SECOND = timedelta(seconds=1)


@activity.defn(name="upper")
async def upper(text: str) -> str:
    return text.upper()


@workflow.defn(name="Greet")
class Greet:
    """Return a greeting, after one activity."""

    @workflow.run
    async def run(self, name: str) -> str:
        upped: str = await workflow.execute_activity(
            "upper", name, result_type=str, start_to_close_timeout=timedelta(seconds=10)
        )
        return f"hello {upped}"


def fresh(prefix: str) -> str:
    """Return a name that no other test uses."""
    return f"{prefix}-{token_hex(6)}"


def greetings(count: int, *, queue: str, prefix: str) -> list[NewWorkflow]:
    return [
        NewWorkflow(id=f"{prefix}-{number}", type="Greet", task_queue=queue, args=[f"n{number}"])
        for number in range(count)
    ]


@asynccontextmanager
async def greeting_worker(client: Client, queue: str) -> AsyncGenerator[None]:
    """Run a worker while the body runs, and stop it as an operator does."""
    spec = WorkerSpec(
        task_queue=queue,
        workflows=[Greet],
        activities=[upper],
        workflows_at_once=5,
        activities_at_once=10,
    )
    stop = asyncio.Event()
    async with alongside(run_workers(client, [spec], stop, grace=SECOND)):
        yield
        stop.set()


async def executions(client: Client, workflow_id: str) -> Sequence[WorkflowExecution]:
    """Return all runs of an id, from Temporal's own list, once the list has one.

    Temporal adds to its list a moment after a start, so this asks until it is there.
    """
    while True:
        query = f"WorkflowId = '{workflow_id}'"
        found = [each async for each in client.list_workflows(query)]
        if found:
            return found
        await pause(POLL_SECONDS)


async def started_event(client: Client, workflow_id: str) -> HistoryEvent:
    """Return the first event of a workflow's history."""
    events = [each async for each in client.get_workflow_handle(workflow_id).fetch_history_events()]
    assert events[0].event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED
    return events[0]
