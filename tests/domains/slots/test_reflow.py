"""A reflow reassigns future slots after a lower capacity: dry run, record, notification."""

import asyncio
import json
from typing import Any

import pytest
from httpx import AsyncClient

from penstock import Penstock
from penstock.base.aio import alongside
from penstock.postgres.listen import listen
from tests.api.scene import Callers, problem
from tests.domains.slots.scene import (
    NOON,
    SLOTS,
    Config,
    Json,
    after,
    body_of,
    instant_of,
    make_config,
    offset_of,
    text_of,
)

REFLOW = f"{SLOTS}/reflow"
MOVES = f"{SLOTS}/moves"


async def reflow(config: Config, **fields: Any) -> Json:
    return body_of(await config.client.post(REFLOW, json={"configName": config.name} | fields))


async def offsets(config: Config) -> list[float]:
    return [offset_of(slot) for slot in await config.list_all()]


async def halved(client: AsyncClient, count: int = 8) -> Config:
    """Create a config with slots for one instant, a second apart, then halve its capacity."""
    config = await make_config(client)
    await config.fill(count)
    await config.change(maxPerWindow=2, windowSize="PT4S")
    return config


async def test_a_dry_run_is_the_default_and_moves_nothing(shared_admin: AsyncClient) -> None:
    config = await halved(shared_admin)
    before = await config.list_all()

    result = await reflow(config)

    frozen_until = result.pop("frozenUntil")
    assert instant_of(frozen_until) < NOON
    assert result == {
        "configName": config.name,
        "dryRun": True,
        "reflowId": None,
        "considered": 8,
        "moved": 7,
        "lastBefore": text_of(after(7)),
        "lastAfter": text_of(after(14)),
        "longestDelayMs": 7000,
    }
    assert await config.list_all() == before
    assert await reflow(config, dryRun=True) == result | {"frozenUntil": frozen_until}


async def test_slots_are_moved_to_the_cells_of_the_new_rule(shared_admin: AsyncClient) -> None:
    config = await halved(shared_admin)
    planned = await reflow(config)

    done = await reflow(config, dryRun=False)

    assert done["reflowId"] is not None
    assert [done[each] for each in ("considered", "moved", "lastAfter", "longestDelayMs")] == [
        planned[each] for each in ("considered", "moved", "lastAfter", "longestDelayMs")
    ]
    slots = await config.list_all()
    assert [offset_of(slot) for slot in slots] == [0, 2, 4, 6, 8, 10, 12, 14]
    # The order is unchanged.
    assert [slot["eventId"] for slot in slots] == [config.event(f"filler-{n}") for n in range(8)]
    # Their old cells are free, and their new cells are taken.
    assert offset_of(await config.assign("next")) == 16
    assert (await reflow(config, dryRun=False))["moved"] == 0


async def test_a_repeated_request_returns_the_new_time(shared_admin: AsyncClient) -> None:
    config = await halved(shared_admin)
    await reflow(config, dryRun=False)

    slot = await config.assign("filler-7")

    assert offset_of(slot) == 14
    assert slot["delayMs"] == 14_000


async def test_slots_before_the_freeze_stay(shared_admin: AsyncClient) -> None:
    """Callers may have acted on near slots; the freeze is rounded up to a window boundary."""
    config = await halved(shared_admin)

    done = await reflow(config, dryRun=False, freezeUntil=text_of(after(1)))

    assert instant_of(done["frozenUntil"]) == after(4)
    assert (done["considered"], done["moved"]) == (4, 3)
    assert await offsets(config) == [0, 1, 2, 3, 4, 6, 8, 10]


async def test_no_slot_moves_before_its_requested_time(shared_admin: AsyncClient) -> None:
    config = await make_config(shared_admin, 2)
    await config.fill(3)  # At 0, 2 and 4.
    await config.assign("later", after(5))  # At 6.
    await config.change(maxPerWindow=4, windowSize="PT4S")

    await reflow(config, dryRun=False)

    assert await offsets(config) == [0, 1, 2, 5]


async def test_after_a_raise_a_reflow_moves_slots_to_earlier_times(
    shared_admin: AsyncClient,
) -> None:
    config = await make_config(shared_admin, 1)
    await config.fill(5)
    await config.change(maxPerWindow=4, windowSize="PT4S")

    done = await reflow(config, dryRun=False)

    assert await offsets(config) == [0, 1, 2, 3, 4]
    assert (done["lastBefore"], done["lastAfter"]) == (text_of(after(16)), text_of(after(4)))


async def test_every_move_is_recorded_and_can_be_listed(shared_admin: AsyncClient) -> None:
    config, other = await halved(shared_admin, 4), await halved(shared_admin, 4)
    done = await reflow(config, dryRun=False)
    await reflow(other, dryRun=False)

    moves: list[Json] = []
    query: Json = {"reflowId": done["reflowId"], "limit": 2}
    while True:
        found = body_of(await shared_admin.get(MOVES, params=query))
        moves += found["moves"]
        if found["next"] is None:
            break
        query["after"] = found["next"]

    assert [
        (each["eventId"], instant_of(each["movedFrom"]), instant_of(each["movedTo"]))
        for each in moves
    ] == [(config.event(f"filler-{n}"), after(n), after(2 * n)) for n in (1, 2, 3)]
    assert {each["configName"] for each in moves} == {config.name}
    assert {each["reflowId"] for each in moves} == {done["reflowId"]}
    everything = body_of(await shared_admin.get(MOVES, params={"limit": 1000}))["moves"]
    assert len([each for each in everything if each["configName"] == other.name]) == 3


async def test_a_reflow_sends_a_notification(
    admin: AsyncClient, penstock: Penstock, dsn: str
) -> None:
    config = await halved(admin)
    heard: asyncio.Queue[str] = asyncio.Queue()
    connected = asyncio.Event()

    async with alongside(
        listen(dsn, "penstock_slot_moves", heard.put_nowait, on_connect=connected.set)
    ):
        await connected.wait()
        await reflow(config)  # A dry run sends none.
        done = await reflow(config, dryRun=False)
        announced = json.loads(await heard.get())

    assert announced == {"pool": config.name, "reflow_id": done["reflowId"], "moved": 7}
    assert heard.empty()
    assert await penstock.pool.fetchval("SELECT count(*) FROM penstock.slot_reflow") == 1


async def test_a_reflow_is_audited(callers: Callers) -> None:
    config = await halved(callers.admin)
    done = await reflow(config, dryRun=False)

    lines = body_of(await callers.admin.get("/audit", params={"subject": config.name}))["items"]

    assert lines[0]["action"] == "slots.reflowed"
    assert lines[0]["after"] == {"reflow_id": done["reflowId"], "moved": 7}


async def test_a_random_instant_is_drawn_again_within_the_new_window(
    shared_admin: AsyncClient,
) -> None:
    config = await make_config(shared_admin, spacing="random")
    await config.fill(8, after(1))
    await config.change(maxPerWindow=2, windowSize="PT4S")

    await reflow(config, dryRun=False)

    slots = await config.list_all()
    windows = [(instant_of(slot["windowStart"]) - NOON).total_seconds() for slot in slots]
    assert windows == [0, 4, 4, 8, 8, 12, 12, 16]
    for slot in slots:
        assert instant_of(slot["windowStart"]) <= instant_of(slot["scheduledTime"])
        assert offset_of(slot) < (instant_of(slot["windowStart"]) - NOON).total_seconds() + 4
        assert offset_of(slot) >= 1


async def test_a_freeze_after_all_slots_moves_nothing(
    shared_admin: AsyncClient,
) -> None:
    config = await halved(shared_admin)

    result = await reflow(config, dryRun=False, freezeUntil="2200-01-01T00:00:00Z")

    assert (result["considered"], result["moved"], result["reflowId"]) == (0, 0, None)
    assert result["frozenUntil"] == "2200-01-01T00:00:00Z"


async def test_a_reflow_moves_slots_out_of_a_blackout(shared_admin: AsyncClient) -> None:
    config = await make_config(shared_admin)
    await config.fill(6)
    blackout = {"from": text_of(after(2)), "until": text_of(after(60))}
    await config.change(
        maxPerWindow=4,
        windowSize="PT4S",
        calendar={"timeZone": "UTC", "blackouts": [blackout]},
    )

    await reflow(config, dryRun=False)

    assert await offsets(config) == [0, 1, 60, 61, 62, 63]


@pytest.mark.covers("D91")
async def test_only_an_admin_may_reflow(shared_callers: Callers) -> None:
    config = await halved(shared_callers.admin)

    for client in (shared_callers.producer, shared_callers.reader):
        response = await client.post(REFLOW, json={"configName": config.name, "dryRun": False})
        assert problem(response, 403, "forbidden")["scope"] == "admin"

    assert await offsets(config) == list(range(8))


async def test_an_unknown_config_is_not_found(shared_admin: AsyncClient) -> None:
    response = await shared_admin.post(REFLOW, json={"configName": "nobody"})

    assert problem(response, 404, "unknown-pool")["pool"] == "nobody"
