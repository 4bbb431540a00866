"""A cancelled slot is free for the next request."""

import asyncio

import pytest
from httpx import AsyncClient

from penstock import Penstock
from tests.api.scene import Callers, problem
from tests.domains.slots.scene import (
    SLOTS,
    after,
    body_of,
    make_config,
    offset_of,
)


@pytest.mark.covers("D91")
async def test_a_cancelled_slot_goes_to_the_next_caller(shared_admin: AsyncClient) -> None:
    config = await make_config(shared_admin)
    await config.fill(10)

    cancelled = await shared_admin.delete(f"{SLOTS}/{config.event('filler-5')}")

    assert cancelled.status_code == 204
    assert cancelled.content == b""
    slots = [await config.assign("next"), await config.assign("after it")]
    assert [offset_of(slot) for slot in slots] == [5, 10]


async def test_cancelling_again_is_harmless(
    shared_admin: AsyncClient, shared_penstock: Penstock
) -> None:
    """A repeat must not cancel the slot of the event that has the place now."""
    config = await make_config(shared_admin)
    await config.fill(3)
    path = f"{SLOTS}/{config.event('filler-1')}"

    first = await shared_admin.delete(path)
    heir = await config.assign("heir")
    again = await shared_admin.delete(path)

    assert (first.status_code, again.status_code) == (204, 204)
    assert offset_of(heir) == 1
    assert await config.show("heir") != {}
    assert offset_of(await config.assign("last")) == 3
    kept = await shared_penstock.pool.fetchval(
        "SELECT count(*) FROM penstock.slot_cancelled WHERE event_id = $1",
        config.event("filler-1"),
    )
    assert kept == 1


async def test_cancelling_an_event_that_never_had_a_slot_is_not_found(
    shared_admin: AsyncClient,
) -> None:
    response = await shared_admin.delete(f"{SLOTS}/nobody")

    assert problem(response, 404, "unknown-slot")["event_id"] == "nobody"


async def test_a_cancelled_event_is_not_found_and_may_request_again(
    shared_admin: AsyncClient,
) -> None:
    """Also for another time, because there is no slot to conflict with."""
    config = await make_config(shared_admin)
    await config.assign("event")
    path = f"{SLOTS}/{config.event('event')}"
    await shared_admin.delete(path)

    shown = await shared_admin.get(path)
    renewed = await config.assign("event", after(60))

    problem(shown, 404, "unknown-slot")
    assert offset_of(renewed) == 60


async def test_cancelling_keeps_a_copy_of_the_slot_and_who_cancelled_it(
    callers: Callers, penstock: Penstock
) -> None:
    config = await make_config(callers.admin)
    await config.assign("event", after(2))
    await callers.producer.delete(f"{SLOTS}/{config.event('event')}")

    kept = await penstock.pool.fetchrow("SELECT * FROM penstock.slot_cancelled")

    assert kept is not None
    assert (kept["event_id"], kept["scheduled_at"]) == (config.event("event"), after(2))
    assert kept["cancelled_by"].startswith("key:")


async def test_cancelling_and_assigning_conserve_capacity(admin: AsyncClient) -> None:
    """Concurrent assigns and cancels leave a window without gaps or duplicates."""
    config = await make_config(admin, 100)
    await config.fill(100)

    responses = await asyncio.gather(
        *(
            admin.delete(f"{SLOTS}/{config.event(f'filler-{number}')}")
            for number in range(0, 100, 2)
        ),
        *(admin.post(SLOTS, json=config.request(f"new-{number}")) for number in range(60)),
    )
    await config.fill(50, name="rest")

    assert {response.status_code for response in responses} == {200, 204}
    slots = await config.list_all()
    first = [offset_of(slot) for slot in slots if offset_of(slot) < 4]
    assert first == [number / 25 for number in range(100)]
    assert len({slot["scheduledTime"] for slot in slots}) == len(slots)


async def test_a_cancelled_slot_of_an_older_rule_frees_a_place_under_the_new_one(
    shared_admin: AsyncClient,
) -> None:
    config = await make_config(shared_admin, 7)
    await config.fill(7)
    await config.change(maxPerWindow=5, windowSize="PT4S")

    over = await config.assign("over")
    for number in range(3):
        body_of(await shared_admin.get(f"{SLOTS}/{config.event(f'filler-{number}')}"))
        await shared_admin.delete(f"{SLOTS}/{config.event(f'filler-{number}')}")
    slots = [await config.assign("in"), await config.assign("out")]

    # Seven slots in a window of five: the first two cancellations free no cell.
    assert [offset_of(slot) // 4 for slot in (over, *slots)] == [1, 0, 1]
