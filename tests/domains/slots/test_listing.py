"""Slots are listed in pages, by scheduled and creation time, and shown as a heat map."""

from typing import Any

import pytest
from httpx import AsyncClient

from tests.api.scene import problem
from tests.domains.slots.scene import (
    HOUR,
    MICROSECOND,
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


async def page(config: Config, **query: Any) -> Json:
    return body_of(await config.client.get(SLOTS, params={"configName": config.name} | query))


@pytest.mark.covers("D91")
@pytest.mark.parametrize("limit", [1, 3, 7, 10])
async def test_pages_list_all_slots_by_window_and_position(
    shared_admin: AsyncClient, limit: int
) -> None:
    config = await make_config(shared_admin)
    await config.fill(5, after(8), name="late")
    await config.fill(5, name="early")

    seen: list[Json] = []
    cursor: str | None = None
    while True:
        found = await page(config, limit=limit, **({} if cursor is None else {"after": cursor}))
        assert len(found["slots"]) <= limit
        seen += found["slots"]
        cursor = found["next"]
        if cursor is None:
            break

    assert [offset_of(slot) for slot in seen] == [0, 1, 2, 3, 4, 8, 9, 10, 11, 12]
    assert seen == await config.list_all()


async def test_a_page_continues_after_its_cursor_despite_changes(
    shared_admin: AsyncClient,
) -> None:
    """Slots assigned or cancelled between two pages must not repeat or skip others."""
    config = await make_config(shared_admin)
    await config.fill(6)
    first = await page(config, limit=3)

    await shared_admin.delete(f"{SLOTS}/{config.event('filler-2')}")
    await shared_admin.delete(f"{SLOTS}/{config.event('filler-0')}")
    second = await page(config, limit=3, after=first["next"])

    assert [offset_of(slot) for slot in second["slots"]] == [3, 4, 5]


async def test_a_listing_has_only_the_requested_interval(shared_admin: AsyncClient) -> None:
    config = await make_config(shared_admin)
    await config.fill(10)

    found = await page(config, **{"from": text_of(after(3)), "until": text_of(after(7))})

    assert [offset_of(slot) for slot in found["slots"]] == [3, 4, 5, 6]
    assert found["next"] is None


async def test_a_listing_by_time_compares_the_scheduled_time_not_the_window(
    shared_admin: AsyncClient,
) -> None:
    """A window of a day begins long before its last slots."""
    config = await make_config(shared_admin, 24, "P1D")
    await config.assign("event", NOON)

    found = await page(config, **{"from": text_of(NOON), "until": text_of(NOON + MICROSECOND)})

    assert [offset_of(slot) for slot in found["slots"]] == [0]


@pytest.mark.covers("D21")
async def test_recently_booked_future_slots_can_be_listed(
    shared_admin: AsyncClient,
) -> None:
    """For reconciliation: slots assigned since the last check that are not due yet."""
    config = await make_config(shared_admin)
    await config.fill(3, name="old")
    looked_at = (await config.list_all())[-1]["createdAt"]
    since = text_of(instant_of(looked_at) + MICROSECOND)
    await config.fill(2, name="new")
    await config.fill(2, after(100), name="later")

    made = await page(config, createdFrom=since)
    due = await page(config, createdFrom=since, until=text_of(after(60)))

    assert [offset_of(slot) for slot in made["slots"]] == [3, 4, 100, 101]
    assert [offset_of(slot) for slot in due["slots"]] == [3, 4]


async def test_a_config_lists_its_own_slots_only(shared_admin: AsyncClient) -> None:
    config, other = await make_config(shared_admin), await make_config(shared_admin)
    await config.fill(2)

    assert (await page(other))["slots"] == []
    response = await shared_admin.get(SLOTS, params={"configName": "nobody"})
    assert problem(response, 404, "unknown-pool")["pool"] == "nobody"


# ----------------------------------------------------------------------------------- heat map


async def heat(config: Config, start: float, end: float, *, buckets: int) -> list[Json]:
    query = {
        "configName": config.name,
        "from": text_of(after(start)),
        "until": text_of(after(end)),
        "buckets": buckets,
    }
    answer = body_of(await config.client.get(f"{SLOTS}/heatmap", params=query))
    assert answer["configName"] == config.name
    return answer["buckets"]


async def test_the_heat_map_shows_how_full_each_bucket_is(shared_admin: AsyncClient) -> None:
    config = await make_config(shared_admin)
    await config.fill(6)
    await config.fill(2, after(13), name="later")

    found = await heat(config, -4, 16, buckets=5)

    assert [instant_of(each["start"]) for each in found] == [after(n) for n in (-4, 0, 4, 8, 12)]
    assert [each["capacity"] for each in found] == [4] * 5
    assert [each["booked"] for each in found] == [0, 4, 2, 0, 2]


async def test_the_heat_map_excludes_closed_time_and_cancelled_slots(
    shared_admin: AsyncClient,
) -> None:
    closed = {"from": text_of(after(4)), "until": text_of(after(8))}
    config = await make_config(shared_admin, calendar={"timeZone": "UTC", "blackouts": [closed]})
    await config.fill(6)
    await shared_admin.delete(f"{SLOTS}/{config.event('filler-1')}")

    found = await heat(config, 0, 12, buckets=3)

    assert [(each["capacity"], each["booked"]) for each in found] == [(4, 3), (0, 0), (4, 2)]


async def test_the_heat_map_counts_a_year_in_one_call(shared_admin: AsyncClient) -> None:
    config = await make_config(shared_admin, 100)
    await config.fill(1_000)

    found = await heat(config, 0, 365 * 24 * HOUR.total_seconds(), buckets=365)

    assert sum(each["capacity"] for each in found) == 365 * 24 * 3600 * 25
    assert [each["booked"] for each in found[:2]] == [1_000, 0]
