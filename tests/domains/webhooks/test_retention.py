"""What is still known of deliveries when retention has deleted their history."""

from datetime import UTC, datetime, timedelta

import pytest

from penstock.base.clock import FakeClock
from penstock.kernel.enqueue import enqueue_many
from penstock.kernel.item import ItemId, NewItem
from penstock.kernel.lane import create_lane
from penstock.kernel.operate import cancel
from penstock.kernel.retain import open_days, retain, trim_day
from penstock.testing import run_due
from tests.domains.webhooks.scene import Json, Tenant, body_of
from tests.receiver import receiving

LATER = timedelta(days=400)  # More than any lane keeps its history.
EVENTS = 12  # A day is dropped if at most a tenth of it must be kept, and otherwise trimmed.

each_history = pytest.mark.parametrize("history", ["kept", "dropped", "trimmed"])


async def item_of(tenant: Tenant, event: Json) -> ItemId:
    (delivery,) = (await tenant.show(event["id"]))["deliveries"]
    return ItemId(delivery["item_id"])


async def lose_history(tenant: Tenant, clock: FakeClock, how: str) -> None:
    """Let retention drop the day of today, or trim from it the lanes of webhooks."""
    later = clock.now() + LATER
    async with tenant.penstock.pool.acquire() as db:
        if how == "trimmed":
            await create_lane(db, "other", who="test")
            await enqueue_many(db, "other", [NewItem(payload=n) for n in range(EVENTS)])
        await open_days(db, now=later)
        dropped = (await retain(db, now=later)).dropped
        trimmed = await trim_day(db, now=later)
    today = datetime.now(UTC).date().isoformat()
    assert (today in dropped, trimmed is not None) == (how == "dropped", how == "trimmed")


@each_history
async def test_a_cancelled_delivery_has_failed_and_stays_so(
    own: Tenant, clock: FakeClock, history: str
) -> None:
    async with receiving() as receiver:
        await own.subscribe(receiver.url)
        cancelled, *delivered = [await own.send() for _ in range(EVENTS)]
        async with own.penstock.pool.acquire() as db:
            await cancel(db, await item_of(own, cancelled), who="test")
        await run_due(own.penstock, clock)
    if history != "kept":
        await lose_history(own, clock, history)

    shown = await own.show(cancelled["id"])
    assert (shown["status"], shown["last_error"]) == ("failed", "cancelled")
    assert shown["delivered_at"] is None
    assert {(await own.show(event["id"]))["status"] for event in delivered} == {"delivered"}
    attempts = [len(await own.attempts(event["id"])) for event in delivered]
    assert attempts == [1 if history == "kept" else 0] * len(delivered)
    assert len(receiver.requests) == EVENTS - 1


@each_history
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
        if history != "kept":
            await lose_history(own, clock, history)
        receiver.requests.clear()
        replay = {"subscription_id": subscribed.id, "which": "delivered"}
        started = body_of(await own.client.post("/replays", json=replay), 202)
        await run_due(own.penstock, clock)

    came = [request.headers["webhook-id"] for request in receiver.requests]
    assert started["counted"] == len(delivered)
    assert sorted(came) == sorted(event["id"] for event in delivered)
