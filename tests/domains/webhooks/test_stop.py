"""A worker that is told to stop ends what it has begun, begins nothing, and stops."""

import asyncio

import pytest

from penstock.domains.webhooks.domain import LANE
from penstock.kernel.claim import CLAIM
from penstock.kernel.lane import set_lane
from tests.domains.webhooks.scene import PATIENCE, Tenant, working
from tests.fault.waiting import until
from tests.receiver import Reply, receiving

SOON = 10.0  # Seconds: far more than a stop takes, and less than what is given to a hanging one.


@pytest.mark.covers("B58")
async def test_deliveries_under_way_are_ended_and_written_down(own: Tenant) -> None:
    answered = asyncio.Event()
    async with own.penstock.pool.acquire() as db:
        await set_lane(db, LANE, who="test", concurrency=1)
    async with receiving(answers=[Reply(after=answered)]) as receiver:
        await own.subscribe(receiver.url)
        first, second = await own.send(), await own.send()
        async with asyncio.timeout(PATIENCE), working(own.penstock) as stop:
            await receiver.wait_for(1)
            stop.set()
            answered.set()

    statuses = {(await own.show(event["id"]))["status"] for event in (first, second)}
    assert statuses <= {"delivered", "retrying", "pending"}
    assert "delivered" in statuses
    assert len(receiver.requests) == 1
    assert await own.penstock.pool.fetchval("SELECT count(*) FROM penstock.lease") == 0


@pytest.mark.covers("B58")
async def test_what_a_claim_brings_after_the_stop_is_given_back(own: Tenant) -> None:
    """Else the worker waits for nothing, and what it got waits for its lease to expire."""
    await own.subscribe()
    event = await own.send()

    async def is_claiming() -> bool:
        return await own.penstock.pool.fetchval(
            "SELECT count(*) > 0 FROM pg_stat_activity "
            "WHERE datname = current_database() AND wait_event_type = 'Lock' "
            "AND query LIKE $1",
            f"{CLAIM[:40]}%",
        )

    async with own.penstock.pool.acquire() as db:
        transaction = db.transaction()
        await transaction.start()
        await db.execute("LOCK TABLE penstock.ready IN ACCESS EXCLUSIVE MODE")
        async with asyncio.timeout(SOON), working(own.penstock) as stop:
            await until(is_claiming, within=PATIENCE)
            stop.set()
            await is_claiming()  # The worker's loops have all had a turn since.
            await transaction.rollback()

    shown = await own.show(event["id"])
    assert (shown["status"], shown["attempts"]) == ("pending", 0)
    assert await own.penstock.pool.fetchval("SELECT count(*) FROM penstock.lease") == 0
