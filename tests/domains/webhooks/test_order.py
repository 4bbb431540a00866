"""Events of one key arrive in the order in which they were accepted, whatever happens between."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest

from penstock.kernel.inspect import read_item
from penstock.kernel.item import ItemId
from penstock.testing import FakeClock, run_to_end
from tests.domains.webhooks.scene import (
    Json,
    Tenant,
    body_of,
    hurry,
    opened_with,
    working,
)
from tests.receiver import Received, Reply, receiving


def order_of(requests: Sequence[Received]) -> dict[str, list[int]]:
    """Return the numbers of events by their key, as they came."""
    came: dict[str, list[int]] = defaultdict(list)
    for request in requests:
        data = json.loads(request.body)["data"]
        came[data["order"]["id"]].append(data["n"])
    return came


async def place_of(tenant: Tenant, event: Json) -> str:
    """Return where the only delivery of an event is."""
    (delivery,) = (await tenant.show(event["id"]))["deliveries"]
    found = await read_item(tenant.penstock.pool, ItemId(delivery["item_id"]))
    assert found is not None
    return found.state


def data_of(key: str, number: int) -> Json:
    return {"order": {"id": key}, "n": number}


async def test_one_key_keeps_its_order_over_retries_and_many_workers(dsn: str, own: Tenant) -> None:
    """Four workers, and one event of each key fails at first: the next would overtake it."""
    failed: set[bytes] = set()

    def answer(request: Received) -> int:
        number = json.loads(request.body)["data"]["n"]
        if number % 12 == 6 and request.body not in failed:
            failed.add(request.body)
            return 503
        return 200

    events = [data_of(f"o{number % 5}", number) for number in range(60)]
    await hurry(own.penstock)
    async with receiving(answers=answer) as receiver, AsyncExitStack() as stack:
        await own.subscribe(receiver.url, ordering_key="order.id", rate_limit=None)
        others = [await stack.enter_async_context(opened_with(dsn)) for _ in range(4)]
        async with working(*others):
            for start in range(0, 60, 20):
                body = [
                    {"type": "order.paid", "tenant": own.name, "data": data}
                    for data in events[start : start + 20]
                ]
                body_of(await own.client.post("/events/batch", json=body))
            await receiver.wait_for(60 + 5)

    assert len(receiver.requests) == 65
    for key, numbers in order_of(receiver.requests).items():
        once = list(dict.fromkeys(numbers))
        assert once == [data["n"] for data in events if data["order"]["id"] == key]
        assert numbers == sorted(numbers), "an event is repeated before the next one goes"


async def test_a_dead_head_steps_aside(tenant: Tenant) -> None:
    """One event that cannot be delivered must not hold up all that come after it for ever."""

    def answer(request: Received) -> int:
        return 400 if json.loads(request.body)["data"]["n"] == 0 else 200

    async with receiving(answers=answer) as receiver:
        await tenant.subscribe(receiver.url, ordering_key="order.id")
        events = [await tenant.send(data=data_of("o", number)) for number in range(3)]
        await tenant.until(events[2]["id"], "delivered")

    assert order_of(receiver.requests) == {"o": [0, 1, 2]}
    assert (await tenant.show(events[0]["id"]))["status"] == "failed"
    assert (await tenant.show(events[1]["id"]))["status"] == "delivered"


async def test_keys_do_not_wait_for_each_other(tenant: Tenant) -> None:
    released = asyncio.Event()

    def answer(request: Received) -> Reply:
        is_slow = json.loads(request.body)["data"]["order"]["id"] == "slow"
        return Reply(after=released if is_slow else None)

    async with receiving(answers=answer) as receiver:
        await tenant.subscribe(receiver.url, ordering_key="order.id")
        first = await tenant.send(data=data_of("slow", 1))
        await receiver.wait_for(1)
        second = await tenant.send(data=data_of("slow", 2))
        other = await tenant.send(data=data_of("quick", 3))
        await tenant.until(other["id"], "delivered")

        assert order_of(receiver.requests) == {"slow": [1], "quick": [3]}
        assert (await tenant.show(second["id"]))["status"] == "pending"
        released.set()
        await tenant.until(second["id"], "delivered")
        await tenant.until(first["id"], "delivered")
    assert order_of(receiver.requests) == {"slow": [1, 2], "quick": [3]}


@pytest.mark.parametrize(
    "data", [None, {}, {"order": None}, {"order": {"id": None}}, {"order": [{"id": 1}]}, "order.id"]
)
async def test_an_event_without_the_key_is_not_ordered(tenant: Tenant, data: object) -> None:
    released = asyncio.Event()
    answers = [Reply(after=released), Reply()]
    async with receiving(answers=answers) as receiver:
        await tenant.subscribe(receiver.url, ordering_key="order.id")
        first = await tenant.send(data=data)
        await receiver.wait_for(1)
        second = await tenant.send(data=data)
        await tenant.until(second["id"], "delivered")
        released.set()
        await tenant.until(first["id"], "delivered")


@pytest.mark.parametrize(
    "key",
    ["", "x" * 128, "x" * 129, "x" * 100_000, "ä\U0001f4b6" * 64, 12.50, True, {"a": [1]}, [7]],
)
async def test_any_value_can_be_a_key(tenant: Tenant, key: object) -> None:
    released = asyncio.Event()
    async with receiving(answers=[Reply(after=released), Reply()]) as receiver:
        await tenant.subscribe(receiver.url, ordering_key="key")
        first = await tenant.send(data={"key": key, "n": 1})
        await receiver.wait_for(1)
        second = await tenant.send(data={"key": key, "n": 2})
        assert await place_of(tenant, second) == "parked"
        released.set()
        await tenant.until(second["id"], "delivered")

    assert [json.loads(each.body)["data"]["n"] for each in receiver.requests] == [1, 2]
    assert (await tenant.show(first["id"]))["status"] == "delivered"


async def test_lines_belong_to_one_subscription(tenant: Tenant) -> None:
    """The same key at another subscriber is another line."""
    released = asyncio.Event()
    async with receiving(answers=[Reply(after=released)]) as slow, receiving() as quick:
        await tenant.subscribe(slow.url, ordering_key="order.id")
        await tenant.subscribe(quick.url, ordering_key="order.id")
        events = [await tenant.send(data=data_of("o", number)) for number in range(3)]
        await quick.wait_for(3)

        assert len(slow.requests) == 1
        released.set()
        await tenant.until(events[2]["id"], "delivered")
    assert order_of(slow.requests) == order_of(quick.requests) == {"o": [0, 1, 2]}


async def test_one_event_may_be_in_order_for_one_and_not_for_another(tenant: Tenant) -> None:
    async with receiving() as ordered, receiving() as plain:
        first = await tenant.subscribe(ordered.url, ordering_key="order.id")
        second = await tenant.subscribe(plain.url)
        third = await tenant.subscribe(ordered.url, ordering_key="order.id")
        event = await tenant.send(data=data_of("o", 1))
        shown = await tenant.until(event["id"], "delivered")

    assert [each["subscription_id"] for each in shown["deliveries"]] == [
        first.id, second.id, third.id,
    ]  # fmt: skip
    assert (len(ordered.requests), len(plain.requests)) == (2, 1)


async def test_what_is_put_off_keeps_its_place(timed: Tenant, clock: FakeClock) -> None:
    """A rate limit that let a follower pass would undo the order."""
    async with receiving() as receiver:
        await timed.subscribe(receiver.url, ordering_key="order.id", rate_limit=0.5)
        for number in range(4):
            await timed.send(data=data_of("o", number))
        await run_to_end(timed.penstock, clock)

    assert order_of(receiver.requests) == {"o": [0, 1, 2, 3]}
