"""Who gets an event: every active subscription of its tenant that wants it, and nobody else."""

import asyncio

import pytest

from tests.domains.webhooks.scene import Json, Tenant, make_tenant
from tests.receiver import Reply, receiving


async def wanted_by(tenant: Tenant, event: Json) -> list[str]:
    """Return the subscriptions that get an event."""
    shown = await tenant.show(event["id"])
    assert len(shown["deliveries"]) == event["deliveries"]
    return [each["subscription_id"] for each in shown["deliveries"]]


@pytest.mark.covers("B19")
async def test_an_event_goes_to_every_subscription_to_its_type(tenant: Tenant) -> None:
    subscribed = {
        pattern: (await tenant.subscribe("http://127.0.0.1:9/", *pattern.split())).id
        for pattern in ("order.paid", "order.*", "order.paid.*", "*", "order", "invoice order.paid")
    }
    wanted = {
        "order.paid": {"order.paid", "order.*", "*", "invoice order.paid"},
        "order": {"order", "*"},
        "order.paid.eu": {"order.*", "order.paid.*", "*"},
        "order.paidx": {"order.*", "*"},
        "Order.paid": {"*"},
        "invoice": {"invoice order.paid", "*"},
    }

    for type_, patterns in wanted.items():
        event = await tenant.send(type_)

        ids = await wanted_by(tenant, event)
        assert set(ids) == {subscribed[pattern] for pattern in patterns}, type_
        assert len(ids) == len(set(ids)), "one delivery for each, however many patterns match"


async def test_patterns_that_overlap_make_one_delivery(tenant: Tenant) -> None:
    await tenant.subscribe("http://127.0.0.1:9/", "order.paid", "order.*", "*", "order.paid")

    event = await tenant.send("order.paid")

    assert event["deliveries"] == 1


async def test_a_filter_looks_into_the_data(tenant: Tenant) -> None:
    rich = await tenant.subscribe(filter={"amount": {"gte": 100}, "customer.country": "DE"})
    await tenant.subscribe(filter={"colour": "red"})

    async def send(data: object) -> list[str]:
        return await wanted_by(tenant, await tenant.send(data=data))

    assert await send({"amount": 100.0, "customer": {"country": "DE"}}) == [rich.id]
    assert await send({"amount": 99.99, "customer": {"country": "DE"}}) == []
    assert await send({"amount": 100}) == []
    assert await send({"amount": "100", "customer": {"country": "DE"}}) == []
    assert await send(None) == []
    assert await send([{"amount": 100}]) == []


@pytest.mark.covers("B20")
async def test_an_event_that_matches_no_subscription_is_delivered(tenant: Tenant) -> None:
    await tenant.subscribe("http://127.0.0.1:9/", "invoice")

    event = await tenant.send("order.paid")

    shown = await tenant.show(event["id"])
    assert event["deliveries"] == 0
    assert shown["status"] == "delivered"
    assert shown["delivered_at"] is None, "nothing was sent"
    assert shown["attempts"] == 0


async def test_an_event_of_a_paused_subscriber_has_no_instant_of_delivery(tenant: Tenant) -> None:
    """It was sent to nobody, and waits for a replay."""
    paused = await tenant.subscribe()
    await tenant.change(paused, state="paused")

    event = await tenant.send()

    shown = await tenant.show(event["id"])
    assert (shown["deliveries"], shown["delivered_at"]) == ([], None)


@pytest.mark.covers("B19")
async def test_a_subscription_that_is_not_active_gets_no_new_events(tenant: Tenant) -> None:
    paused, deleted, active = [await tenant.subscribe() for _ in range(3)]
    await tenant.change(paused, state="paused")
    response = await tenant.client.delete(f"/subscriptions/{deleted.id}")
    assert response.status_code == 204

    assert await wanted_by(tenant, await tenant.send()) == [active.id]

    await tenant.change(paused, state="active")
    assert await wanted_by(tenant, await tenant.send()) == [paused.id, active.id]


async def test_a_subscription_gets_events_of_its_own_tenant_only(tenant: Tenant) -> None:
    other = make_tenant(tenant.client, tenant.penstock)
    await other.subscribe()

    assert (await tenant.send())["deliveries"] == 0
    assert (await other.send())["deliveries"] == 1


async def test_what_a_subscription_wants_can_change(tenant: Tenant) -> None:
    """From the moment of the answer on, for all events that come later."""
    subscribed = await tenant.subscribe("http://127.0.0.1:9/", "order.*", "invoice")
    await tenant.change(subscribed, event_types=["invoice", "mail.*"], filter={"n": 1})

    async def count(type_: str, data: object) -> int:
        return (await tenant.send(type_, data))["deliveries"]

    assert await count("order.paid", {"n": 1}) == 0
    assert await count("invoice", {"n": 1}) == 1
    assert await count("mail.sent", {"n": 1}) == 1
    assert await count("mail.sent", {"n": 2}) == 0
    await tenant.change(subscribed, filter=None)
    assert await count("mail.sent", {"n": 2}) == 1


@pytest.mark.covers("B21")
async def test_the_deliveries_of_an_event_run_side_by_side(tenant: Tenant) -> None:
    """One slow subscriber must not hold up the others, nor those the third."""
    together = asyncio.Event()

    async with (
        receiving(answers=[Reply(after=together)]) as first,
        receiving(answers=[Reply(after=together)]) as second,
        receiving() as third,
    ):
        for receiver in (first, second, third):
            await tenant.subscribe(receiver.url)
        event = await tenant.send()

        # Both are under way, and neither is answered before the other has begun.
        await first.wait_for(1)
        await second.wait_for(1)
        await tenant.until_shown(
            event["id"], lambda event: event["deliveries"][2]["status"] == "delivered"
        )
        assert (await tenant.show(event["id"]))["status"] == "pending"
        together.set()
        await tenant.until(event["id"], "delivered")


@pytest.mark.covers("B64")
async def test_a_failing_subscriber_does_not_repeat_the_deliveries_of_others(
    tenant: Tenant,
) -> None:
    """A retry of the event as a whole would deliver again to those who have it."""
    async with receiving() as good, receiving(answers=[500, 503, 200]) as shaky:
        await tenant.subscribe(good.url)
        await tenant.subscribe(shaky.url)
        event = await tenant.send()

        await shaky.wait_for(3)
        shown = await tenant.until(event["id"], "delivered")

    assert len(good.requests) == 1
    assert len(shaky.requests) == 3
    assert [each["attempts"] for each in shown["deliveries"]] == [1, 3]
    assert shown["attempts"] == 4
