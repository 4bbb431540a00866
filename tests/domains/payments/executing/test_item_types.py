"""Item types that a row adds while workers run."""

import asyncio

import pytest

from penstock.base.aio import alongside
from tests.domains.outbox.sending.ledger import Ledger
from tests.domains.payments.executing.scene import Scene
from tests.fault.waiting import until

PATIENCE = 60.0


@pytest.mark.covers("A56")
async def test_a_row_adds_an_item_type_that_a_running_worker_executes(
    scene: Scene, ledger: Ledger
) -> None:
    async def is_paid() -> bool:
        return await scene.status("r-1") == "SETTLED"

    async with alongside(scene.app.run_worker(asyncio.Event())):
        await scene.app.pool.execute(
            "INSERT INTO penstock.exec_rate_config (item_type) VALUES ('REFUND')"
        )
        await scene.schedule("r-1", item_type="REFUND")
        await until(is_paid, within=PATIENCE)

    assert ledger.bookings == ["r-1"]
    assert [row["item_type"] for row in await scene.log("r-1")] == ["REFUND"]
    row = await scene.app.pool.fetchrow(
        "SELECT batch_size, exec_workflow_type FROM penstock.exec_rate_config"
        " WHERE item_type = 'REFUND'"
    )
    assert row is not None
    assert tuple(row.values()) == (500, "PaymentExecWorkflow")
