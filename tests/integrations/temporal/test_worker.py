"""A worker executes the workflows and activities of its queue until it is stopped."""

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus

from penstock.integrations.temporal.start import start_workflows
from tests.integrations.temporal.scene import executions, fresh, greeting_worker, greetings


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
