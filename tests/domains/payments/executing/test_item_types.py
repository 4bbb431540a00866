"""Item types that a row adds while workers run."""

import asyncio

import pytest
from msgspec.structs import replace

from penstock.base.aio import alongside
from penstock.domains.payments.persist import look_up
from penstock.domains.payments.steps import STEPS
from penstock.kernel.item import Dead
from tests.domains.outbox.sending.ledger import Ledger
from tests.domains.payments.executing.scene import NOW, Scene
from tests.domains.payments.scene import a_payment
from tests.fault.waiting import until

PATIENCE = 60.0
REFUND = "INSERT INTO penstock.exec_rate_config (item_type) VALUES ('REFUND')"


@pytest.mark.covers("A56")
async def test_a_row_adds_an_item_type_that_a_running_worker_executes(
    scene: Scene, ledger: Ledger
) -> None:
    async def is_paid() -> bool:
        return await scene.status("r-1") == "SETTLED"

    async with alongside(scene.app.run_worker(asyncio.Event())):
        await scene.app.pool.execute(REFUND)
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


async def test_an_item_never_executes_a_payment_of_another_type(
    scene: Scene, ledger: Ledger
) -> None:
    """An earlier release may have left an item in the lane of a type that its payment has not."""
    await scene.app.pool.execute(REFUND)
    await scene.schedule("r-1", item_type="REFUND", execute_at="2031-01-31T16:00:00Z")
    await scene.app.pool.execute(
        """SELECT penstock.enqueue('payment', '{"payment_id": "r-1"}', owner => 'payments')"""
    )

    (attempted,) = await scene.run_payments()

    assert attempted.outcome == Dead("the payment has no context")
    assert await scene.status("r-1") == "SCHEDULED"
    assert ledger.bookings == []


async def test_a_payment_is_not_executed_with_the_context_of_another_type(
    scene: Scene, ledger: Ledger
) -> None:
    """A workflow has persisted it, and crashed: another item with its id is not this payment."""
    pool = scene.app.pool
    await pool.execute(REFUND)
    draft = STEPS.build_context(STEPS.enrich(STEPS.validate(a_payment("p-1", **NOW))))
    async with pool.acquire() as db:
        now = (await look_up(db, [draft], None)).at
        refund = replace(draft, payment=replace(draft.payment, item_type="REFUND"))
        await STEPS.save_and_enqueue(db, [refund], now)
        await STEPS.persist(db, [draft], now)

    async def is_dead() -> bool:
        return bool(await pool.fetchval("SELECT EXISTS (SELECT FROM penstock.dead)"))

    async with alongside(scene.app.run_worker(asyncio.Event(), lanes=["refund"])):
        await until(is_dead, within=PATIENCE)

    assert await scene.status("p-1") == "SCHEDULED"
    assert ledger.bookings == []
