"""The first phase of a payment as a workflow, for callers that are on Temporal. Nothing waits."""

from temporalio import workflow

from penstock.domains.payments.temporal.lifecycle import (
    STEP_RETRIES,
    STEP_TIMEOUT,
    ScheduleLifecycle,
)
from penstock.domains.payments.temporal.models import (
    APPLY_RULES,
    BUILD_CONTEXT,
    DETERMINE_TIME,
    ENRICH,
    PAYMENT_INIT,
    PERSIST,
    VALIDATE,
    Schedulable,
)


@workflow.defn(name=PAYMENT_INIT)
class PaymentInitWorkflow:
    """Validates, enriches and persists a payment, then enqueues it."""

    @workflow.run
    async def run(self, payment_id: str, request_json: str) -> str:
        """Return when the payment will be executed. A payment that is refused fails at once."""
        draft = await _step(VALIDATE, payment_id, request_json)
        for name in (ENRICH, APPLY_RULES, PERSIST, BUILD_CONTEXT):
            draft = await _step(name, payment_id, draft)
        item = await workflow.execute_activity(
            DETERMINE_TIME,
            args=[payment_id, draft],
            result_type=Schedulable,
            start_to_close_timeout=STEP_TIMEOUT,
            retry_policy=STEP_RETRIES,
        )
        return await ScheduleLifecycle(item.item_type).enqueue(
            item.item_id,
            item.context_json,
            context_version=item.context_version,
            exec_time=item.exec_time,
        )


async def _step(name: str, payment_id: str, text: str) -> str:
    draft: str = await workflow.execute_activity(
        name,
        args=[payment_id, text],
        result_type=str,
        start_to_close_timeout=STEP_TIMEOUT,
        retry_policy=STEP_RETRIES,
    )
    return draft
