"""Both phases of another item type. Alone in their file: Temporal loads them in a sandbox."""

import json

from temporalio import workflow

from penstock.domains.payments.temporal.lifecycle import ScheduleLifecycle


@workflow.defn(name="InvoiceInit")
class InvoiceInit:
    """The first phase of another item type: it has a lifecycle, and inherits nothing."""

    def __init__(self) -> None:
        self.lifecycle = ScheduleLifecycle("INVOICE")

    @workflow.run
    async def run(self, invoice_id: str) -> str:
        return await self.lifecycle.enqueue(invoice_id, '{"total": "7.00"}')


@workflow.defn(name="InvoiceExec")
class InvoiceExec:
    """The second phase: it gets an id and a context, and knows nothing of the queue."""

    @workflow.run
    async def run(self, invoice_id: str, context_json: str) -> str:
        return f"{invoice_id}: {json.loads(context_json)['total']}"
