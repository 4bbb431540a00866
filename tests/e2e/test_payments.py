"""Payments with real processes: `penstock serve` accepts them, and `penstock worker` executes."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from penstock.postgres.pool import Pool
from tests.domains.payments.scene import a_body
from tests.e2e.command import penstock
from tests.fault.waiting import until

PATIENCE = 60.0
KEY = "a-key-from-the-vault"
REFUND = "INSERT INTO penstock.exec_rate_config (item_type) VALUES ('REFUND')"


@asynccontextmanager
async def served(dsn: str, folder: Path) -> AsyncGenerator[httpx.AsyncClient]:
    """Run `penstock serve`, and give a client that may do everything."""
    environment = {"PENSTOCK_DATABASE_URL": dsn, "PENSTOCK_ADMIN_KEY": KEY}
    with penstock("serve", "--port", "0", folder=folder, environment=environment) as serve:
        url = serve.wait_for(r"penstock serves (\S+)").group(1)
        headers = {"Authorization": f"Bearer {KEY}"}
        async with httpx.AsyncClient(base_url=url, headers=headers) as client:
            yield client


async def schedule_refund(client: httpx.AsyncClient) -> None:
    body = a_body("r-1", item_type="REFUND", execute_at=None, notify={})
    answer = await client.post("/payments", json=body)
    assert answer.status_code == 202, answer.text


async def is_executed(db: Pool) -> bool:
    """Return whether the payment is with the outbox; what its rail does is no matter here."""
    return await db.fetchval("SELECT outbox_id IS NOT NULL FROM penstock.payment")


@pytest.mark.covers("A56")
async def test_a_worker_executes_an_item_type_that_was_added_after_its_start(
    dsn: str, db: Pool, *, folder: Path
) -> None:
    """A worker that knew only the lanes of its start would leave the payment ready for ever."""
    environment = {"PENSTOCK_DATABASE_URL": dsn}
    with penstock("worker", folder=folder, environment=environment) as worker:
        worker.wait_for("worker.started")
        async with served(dsn, folder) as client:
            await db.execute(REFUND)
            await schedule_refund(client)

            await until(lambda: is_executed(db), within=PATIENCE)

        assert worker.stop() == 0


async def test_a_worker_may_run_the_lane_of_an_added_item_type_alone(
    dsn: str, db: Pool, *, folder: Path
) -> None:
    """An item type may have workers of its own; --lane takes its lane like any other."""
    async with served(dsn, folder) as client:
        await db.execute(REFUND)
        await schedule_refund(client)
    environment = {"PENSTOCK_DATABASE_URL": dsn}

    with penstock("worker", "--lane", "refund", folder=folder, environment=environment) as worker:
        worker.wait_for("penstock works on refund$")
        await until(lambda: is_executed(db), within=PATIENCE)

        assert worker.stop() == 0
