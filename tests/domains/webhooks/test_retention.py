"""What is still known of deliveries when the history of their days was dropped."""

from datetime import UTC, datetime, timedelta

import pytest

from penstock.base.clock import FakeClock
from penstock.kernel.item import ItemId
from penstock.kernel.operate import cancel
from penstock.kernel.retain import retain
from penstock.testing import run_due
from tests.domains.webhooks.scene import Json, Tenant, body_of
from tests.receiver import receiving

LATER = timedelta(days=400)  # More than any lane keeps its history.
EVENTS = 12  # Of a day from which more than a tenth must be kept, nothing is dropped.


async def item_of(tenant: Tenant, event: Json) -> ItemId:
    (delivery,) = (await tenant.show(event["id"]))["deliveries"]
    return ItemId(int(delivery["item_id"]))


async def drop_history(tenant: Tenant) -> None:
    """Let retention drop the day of today."""
    async with tenant.penstock.pool.acquire() as db:
        assert await retain(db, now=datetime.now(UTC) + LATER) != []


@pytest.mark.parametrize("history", ["kept", "dropped"])
async def test_a_cancelled_delivery_has_failed_and_stays_so(
    own: Tenant, clock: FakeClock, history: str
) -> None:
    async with receiving() as receiver:
        await own.subscribe(receiver.url)
        cancelled, *delivered = [await own.send() for _ in range(EVENTS)]
        async with own.penstock.pool.acquire() as db:
            await cancel(db, await item_of(own, cancelled), who="test")
        await run_due(own.penstock, clock)
    if history == "dropped":
        await drop_history(own)

    shown = await own.show(cancelled["id"])
    assert (shown["status"], shown["last_error"]) == ("failed", "cancelled")
    assert shown["delivered_at"] is None
    assert {(await own.show(event["id"]))["status"] for event in delivered} == {"delivered"}
    assert len(receiver.requests) == EVENTS - 1


@pytest.mark.parametrize("history", ["kept", "dropped"])
async def test_delivered_events_can_be_replayed_for_ever(
    own: Tenant, clock: FakeClock, history: str
) -> None:
    """Not only while the history of their first delivery is kept."""
    async with receiving() as receiver:
        subscribed = await own.subscribe(receiver.url)
        cancelled, *delivered = [await own.send() for _ in range(EVENTS)]
        async with own.penstock.pool.acquire() as db:
            await cancel(db, await item_of(own, cancelled), who="test")
        await run_due(own.penstock, clock)
        if history == "dropped":
            await drop_history(own)
        receiver.requests.clear()
        replay = {"subscription_id": subscribed.id, "which": "delivered"}
        started = body_of(await own.client.post("/replays", json=replay), 202)
        await run_due(own.penstock, clock)

    came = [request.headers["webhook-id"] for request in receiver.requests]
    assert started["counted"] == len(delivered)
    assert sorted(came) == sorted(event["id"] for event in delivered)
