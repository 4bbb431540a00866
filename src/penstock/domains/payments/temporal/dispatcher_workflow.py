"""One dispatch cycle of an item type, in four steps. A schedule starts it at the interval."""

from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy

from penstock.domains.payments.temporal.models import (
    CLAIM_BATCH,
    DISPATCH_BATCH,
    DISPATCHER,
    READ_CONFIG,
    RECORD_RESULTS,
    ClaimedBatch,
    DispatchConfig,
    DispatchResults,
)

T = TypeVar("T")

# A failed cycle is not repeated: the next one takes over, and an expired lease gives back items.
ONCE = RetryPolicy(maximum_attempts=1)
STEP_TIMEOUT = timedelta(seconds=60)
# While the steps of a dead worker are waited for, no other cycle of the item type begins.
HEARTBEAT_TIMEOUT = timedelta(seconds=15)


@workflow.defn(name=DISPATCHER)
class DispatcherWorkflow:
    """Claims what is due of an item type and starts a workflow for each item."""

    @workflow.run
    async def run(self, item_type: str) -> int:
        """Return how many workflows were started."""
        config = await _once(READ_CONFIG, item_type, result_type=DispatchConfig)
        if not config.is_enabled:
            return 0
        batch = await _once(CLAIM_BATCH, config, result_type=ClaimedBatch)
        if not batch.payment_ids:
            return 0
        results = await _once(
            DISPATCH_BATCH,
            batch,
            config,
            result_type=DispatchResults,
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
        )
        await _once(RECORD_RESULTS, batch.batch_id, results, config, result_type=type(None))
        return len(results.started)


async def _once(
    activity: str, *args: Any, result_type: type[T], heartbeat_timeout: timedelta | None = None
) -> T:
    result: T = await workflow.execute_activity(
        activity,
        args=args,
        result_type=result_type,
        # Without workers the cycle ends, as its lease does: nothing of it is started hours later.
        schedule_to_start_timeout=STEP_TIMEOUT,
        start_to_close_timeout=STEP_TIMEOUT,
        heartbeat_timeout=heartbeat_timeout,
        retry_policy=ONCE,
    )
    return result
