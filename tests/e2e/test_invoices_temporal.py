"""`examples/invoices/…/temporal`: a row, a workflow and a worker make an item type on Temporal."""

import ast
import asyncio
from pathlib import Path

from penstock.integrations.temporal.client import connect
from tests.database import run_sql
from tests.e2e.command import penstock, python
from tests.integrations.temporal.scene import executions
from tests.temporal_server import TemporalServer

FOLDER = Path(__file__).parents[2] / "examples" / "invoices" / "src"
EXAMPLE = FOLDER / "invoices" / "temporal"

ENQUEUE = """
SELECT penstock.save_context_and_enqueue('INVOICE', ARRAY['2030-7'],
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
    """No file of Penstock knows this item type."""
    for statement in (EXAMPLE / "item_type.sql").read_text(encoding="utf-8").split(";\n"):
        if statement.strip():
            await run_sql(dsn, statement)
    await run_sql(dsn, ENQUEUE)
    environment = {
        "PENSTOCK_DATABASE_URL": dsn,
        "TEMPORAL_TARGET": mortal_temporal.target,
        "PYTHONPATH": str(FOLDER),
    }
    client = await connect(mortal_temporal.target)
    options = ("temporal", "worker", "--only", "dispatch")

    with (
        penstock(*options, folder=tmp_path, environment=environment) as dispatcher,
        python("invoices.temporal.worker", folder=tmp_path, environment=environment) as worker,
    ):
        await asyncio.to_thread(worker.wait_for, "sent 2030-7 to acme@example.com")
        await asyncio.to_thread(dispatcher.stop)
        await asyncio.to_thread(worker.stop)

    (run,) = await executions(client, "exec-invoice-2030-7")
    assert (run.workflow_type, run.task_queue) == ("InvoiceExecWorkflow", "invoice-exec-task-queue")
