"""What Temporal says about workflows and task queues, for people."""

from datetime import timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client

from penstock.integrations.temporal.errors import translated

CALL_TIMEOUT = timedelta(seconds=10)


async def count_open(client: Client, id_prefix: str) -> int:
    """Return how many workflows are open whose id begins so. Raises TemporalFailed."""
    with translated():
        found = await client.count_workflows(
            f"WorkflowId STARTS_WITH '{id_prefix}' AND ExecutionStatus = 'Running'",
            rpc_timeout=CALL_TIMEOUT,
        )
    return found.count


async def count_workers(client: Client, task_queue: str) -> int:
    """Return how many workers have asked for workflows of a queue in the last minutes."""
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=task_queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    with translated():
        found = await client.workflow_service.describe_task_queue(request, timeout=CALL_TIMEOUT)
    return len({each.identity for each in found.pollers})
