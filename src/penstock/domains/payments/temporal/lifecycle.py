"""The end of a first phase, for the workflow of any item type: save the context and enqueue."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

from penstock.domains.payments.temporal.models import SAVE_AND_ENQUEUE, Schedulable

STEP_TIMEOUT = timedelta(seconds=30)
# Repeated until it succeeds: nothing may get lost on its way into the queue.
STEP_RETRIES = RetryPolicy(
    initial_interval=timedelta(seconds=1), maximum_interval=timedelta(minutes=1)
)


class ScheduleLifecycle:
    """Enqueues items of one type; a workflow has one as a field, and inherits nothing.

    `task_queue` is that of a worker which has the activity `saveContextAndEnqueue`; without it, the
    queue of the workflow itself.
    """

    def __init__(self, item_type: str, *, task_queue: str | None = None) -> None:
        self.item_type = item_type
        self._task_queue = task_queue

    async def enqueue(
        self,
        item_id: str,
        context_json: str,
        *,
        context_version: int = 1,
        exec_time: str | None = None,
    ) -> str:
        """Save the context and enqueue the item, once; return when it will be executed."""
        item = Schedulable(
            item_type=self.item_type,
            item_id=item_id,
            context_json=context_json,
            context_version=context_version,
            exec_time=exec_time,
        )
        scheduled_at: str = await workflow.execute_activity(
            SAVE_AND_ENQUEUE,
            item,
            task_queue=self._task_queue,
            result_type=str,
            start_to_close_timeout=STEP_TIMEOUT,
            retry_policy=STEP_RETRIES,
        )
        return scheduled_at
