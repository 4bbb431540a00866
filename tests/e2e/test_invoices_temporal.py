"""`examples/invoices/…/temporal`: a row, a workflow and a worker make an item type on Temporal."""

import ast
import asyncio
from datetime import timedelta
from pathlib import Path

from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from penstock.integrations.temporal.client import connect
from tests.database import run_sql
from tests.e2e.command import penstock, python
from tests.fault.waiting import POLL_SECONDS, pause
from tests.integrations.temporal.scene import executions
from tests.temporal_server import TemporalServer

FOLDER = Path(__file__).parents[2] / "examples" / "invoices" / "src"
EXAMPLE = FOLDER / "invoices" / "temporal"

NAMESPACE = "billing"
ENQUEUE = """
SELECT penstock.save_context_and_enqueue('INVOICE', ARRAY['invoice-2030-7'],
    ARRAY['{"customer": "acme"}'::jsonb], ARRAY[1], ARRAY[now()])
"""


def test_the_workflow_of_invoices_imports_nothing_of_penstock() -> None:
    tree = ast.parse((EXAMPLE / "workflow.py").read_text(encoding="utf-8"))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names = {
        each.name for node in ast.walk(tree) if isinstance(node, ast.Import) for each in node.names
    }

    assert not [each for each in modules | names if each and each.startswith("penstock")]


async def test_an_invoice_is_dispatched_and_executed_once(
    dsn: str, mortal_temporal: TemporalServer, tmp_path: Path
) -> None:
    """No file of Penstock knows the item type, and its worker runs in the namespace that is set."""
    for statement in (EXAMPLE / "item_type.sql").read_text(encoding="utf-8").split(";\n"):
        if statement.strip():
            await run_sql(dsn, statement)
    await run_sql(dsn, ENQUEUE)
    environment = {
        "PENSTOCK_DATABASE_URL": dsn,
        "TEMPORAL_TARGET": mortal_temporal.target,
        "TEMPORAL_NAMESPACE": NAMESPACE,
        "PYTHONPATH": str(FOLDER),
    }
    client = await connect(mortal_temporal.target, NAMESPACE)
    await add_namespace(client)
    options = ("temporal", "worker", "--only", "dispatch")

    with (
        penstock(*options, folder=tmp_path, environment=environment) as dispatcher,
        python("invoices.temporal.worker", folder=tmp_path, environment=environment) as worker,
    ):
        await asyncio.to_thread(worker.wait_for, "sent invoice-2030-7 to acme@example.com")
        await asyncio.to_thread(dispatcher.stop)
        await asyncio.to_thread(worker.stop)

    (run,) = await executions(client, "exec-invoice-invoice-2030-7")
    assert (run.workflow_type, run.task_queue) == ("InvoiceExecWorkflow", "invoice-exec-task-queue")


async def add_namespace(client: Client) -> None:
    """Register the client's namespace, and wait until the server knows it."""
    retention = Duration()
    retention.FromTimedelta(timedelta(days=1))
    await client.workflow_service.register_namespace(
        RegisterNamespaceRequest(
            namespace=client.namespace, workflow_execution_retention_period=retention
        )
    )
    async with asyncio.timeout(60):
        while True:
            try:
                await client.count_workflows()
            except RPCError:
                await pause(POLL_SECONDS)
            else:
                return
