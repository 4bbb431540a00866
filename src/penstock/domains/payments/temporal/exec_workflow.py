"""Execute one payment: business steps only, independent of the queue and of the caller."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

from penstock.domains.payments.temporal.models import (
    ACCEPTED,
    EXECUTE,
    NOTIFY,
    PAYMENT_EXEC,
    POST_PROCESS,
    REPORT_FAILURE,
)

STEP_TIMEOUT = timedelta(seconds=30)
# A step is repeated until it succeeds: a payment must not be given up because a database is down.
STEP_RETRIES = RetryPolicy(
    initial_interval=timedelta(seconds=1), maximum_interval=timedelta(minutes=1)
)


@workflow.defn(name=PAYMENT_EXEC)
class PaymentExecWorkflow:
    """Executes a payment, then what belongs to it, then its notifications."""

    @workflow.run
    async def run(self, payment_id: str, context_json: str) -> str:
        """Return the status of the payment at the end."""
        try:
            status = await _step(EXECUTE, payment_id, context_json)
            if status != ACCEPTED:
                return status  # Refused, cancelled, or executed before.
            await _step(POST_PROCESS, payment_id, context_json)
            return await _step(NOTIFY, payment_id, context_json)
        except ActivityError as failed:
            await _step(REPORT_FAILURE, payment_id, _cause(failed))
            raise


async def _step(name: str, payment_id: str, argument: str) -> str:
    status: str = await workflow.execute_activity(
        name,
        args=[payment_id, argument],
        result_type=str,
        start_to_close_timeout=STEP_TIMEOUT,
        retry_policy=STEP_RETRIES,
    )
    return status


def _cause(failed: ActivityError) -> str:
    return f"{failed.activity_type}: {failed.cause or failed}"
