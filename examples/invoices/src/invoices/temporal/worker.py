"""Run the worker of invoices until it is stopped: `python -m invoices.temporal.worker`."""

import asyncio
import os

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from invoices.temporal.workflow import InvoiceExecWorkflow

TASK_QUEUE = "invoice-exec-task-queue"


@activity.defn(name="sendInvoice")
async def send_invoice(number: str, customer: str) -> str:
    """Send an invoice. Temporal repeats it if it fails, so use the number as its key."""
    address = f"{customer}@example.com"
    print(f"sent {number} to {address}", flush=True)
    return address


async def main() -> None:
    """Execute invoices on the server that TEMPORAL_TARGET names."""
    client = await Client.connect(os.environ.get("TEMPORAL_TARGET", "localhost:7233"))
    worker = Worker(
        client,
        task_queue=TASK_QUEUE,
        workflows=[InvoiceExecWorkflow],
        activities=[send_invoice],
    )
    await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
