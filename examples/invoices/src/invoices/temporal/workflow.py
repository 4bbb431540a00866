"""Execute one invoice: business logic only, with the id and the context as JSON text."""

import json
from datetime import timedelta

from temporalio import workflow


@workflow.defn
class InvoiceExecWorkflow:
    """Sends an invoice."""

    @workflow.run
    async def run(self, number: str, context_json: str) -> str:
        """Return the address that the invoice was sent to."""
        customer = json.loads(context_json)["customer"]
        address: str = await workflow.execute_activity(
            "sendInvoice",
            args=[number, customer],
            result_type=str,
            start_to_close_timeout=timedelta(seconds=30),
        )
        return address
