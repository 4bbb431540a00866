"""The first phase of another item type. Alone in its file: Temporal loads it in a sandbox."""

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
