"""Run the worker of invoices until it is stopped: `python -m invoices.temporal.worker`."""

import asyncio
import os

from temporalio import activity
from temporalio.client import Client
from temporalio.envconfig import ClientConfig
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
    """Execute invoices on the server, and in the namespace, that Penstock uses."""
    client = await connect()
    worker = Worker(
        client,
        task_queue=TASK_QUEUE,
        workflows=[InvoiceExecWorkflow],
        activities=[send_invoice],
    )
    await worker.run()


async def connect() -> Client:
    """Return a client by Temporal's own environment; TEMPORAL_TARGET is stronger, as in Penstock.

    The namespace, TLS and the API key are in it too: TEMPORAL_NAMESPACE, TEMPORAL_TLS and others.
    """
    options = ClientConfig.load_client_connect_config()
    options.setdefault("target_host", "localhost:7233")
    if target := os.environ.get("TEMPORAL_TARGET"):
        options["target_host"] = target
    return await Client.connect(**options)


if __name__ == "__main__":
    asyncio.run(main())
