"""A forecast is computed from free cells, and books nothing."""

from typing import Any

import pytest
from httpx import AsyncClient

from penstock import Penstock
from tests.api.scene import Callers, problem
from tests.domains.slots.scene import (
    HOUR,
    NOON,
    SLOTS,
    Config,
    Json,
    after,
    body_of,
    instant_of,
    make_config,
    text_of,
)

FORECAST = f"{SLOTS}/forecast"


async def forecast(config: Config, count: int, start: float = 0) -> Json:
    body = {"configName": config.name, "count": count, "from": text_of(after(start))}
    return body_of(await config.client.post(FORECAST, json=body))


@pytest.mark.covers("D91")
async def test_the_last_of_a_million_for_noon_is_at_23_06_39_96(
    callers: Callers, penstock: Penstock
) -> None:
    """The reference value, on the default config; the scope read is enough."""
    body = {"count": 1_000_000, "from": text_of(NOON)}

    predicted = body_of(await callers.reader.post(FORECAST, json=body))

    assert predicted == {
        "configName": "default",
        "count": 1_000_000,
        "first": text_of(NOON),
        "last": f"{NOON:%Y-%m-%d}T23:06:39.960Z",
        "windowsUsed": 10_000,
    }
    assert await penstock.pool.fetchval("SELECT count(*) FROM penstock.slot") == 0
    assert await penstock.pool.fetchval("SELECT count(*) FROM penstock.slot_run") == 0


CALENDAR = {
    "timeZone": "UTC",
    "blackouts": [{"from": text_of(after(40)), "until": text_of(NOON + HOUR)}],
}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("plain", {}),
    ("three in a second", {"per_window": 3, "size": "PT1S"}),
    ("below a second", {"per_window": 2, "size": "PT0.25S"}),
    ("calendar", {"calendar": CALENDAR}),
]


@pytest.mark.parametrize("count", [1, 5, 60])
@pytest.mark.parametrize("start", [0, 2.5, 6])
@pytest.mark.parametrize("rule", [case[1] for case in CASES], ids=[case[0] for case in CASES])
async def test_a_forecast_comes_true(
    shared_admin: AsyncClient, *, rule: dict[str, Any], start: float, count: int
) -> None:
    """Between existing slots: some now, some later, some cancelled."""
    config = await make_config(shared_admin, **rule)
    await config.fill(3, after(1), name="early")
    await config.fill(5, after(10), name="later")
    await shared_admin.delete(f"{SLOTS}/{config.event('later-2')}")

    predicted = await forecast(config, count, start)
    results = await config.fill(count, after(start), name="real")

    times = sorted(instant_of(each["scheduledTime"]) for each in results)
    assert (instant_of(predicted["first"]), instant_of(predicted["last"])) == (times[0], times[-1])
    real = [each for each in await config.list_all() if "-real-" in each["eventId"]]
    assert predicted["windowsUsed"] == len({each["windowStart"] for each in real})


async def test_full_windows_are_not_counted_as_used(shared_admin: AsyncClient) -> None:
    config = await make_config(shared_admin, 2, "PT4S")
    await config.fill(10, after(4), name="five windows")

    predicted = await forecast(config, 5)

    assert instant_of(predicted["last"]) == after(28)
    assert predicted["windowsUsed"] == 3


# Four cells a window; the window from 40 s on is closed in its middle, with one cell before and one
# after the closed time.
SPLIT = {
    "timeZone": "UTC",
    "blackouts": [{"from": text_of(after(41)), "until": text_of(after(43))}],
}


@pytest.mark.parametrize(
    ("taken", "windows"),
    [({}, 3), ({40: 1}, 4), ({43: 1}, 4), ({40: 2}, 3), ({36: 6}, 2), ({40: 1, 44: 4}, 4)],
    ids=["none", "before", "behind", "the window", "it and the one before", "before and the next"],
)
async def test_a_window_that_is_closed_in_its_middle_is_one_window(
    shared_admin: AsyncClient, taken: dict[int, int], windows: int
) -> None:
    config = await make_config(shared_admin, 4, "PT4S", calendar=SPLIT)
    for at, count in taken.items():
        await config.fill(count, after(at), name=f"at {at}")

    predicted = await forecast(config, 8, 38)
    results = await config.fill(8, after(38), name="real")

    times = sorted(instant_of(each["scheduledTime"]) for each in results)
    assert (instant_of(predicted["first"]), instant_of(predicted["last"])) == (times[0], times[-1])
    real = [each for each in await config.list_all() if "-real-" in each["eventId"]]
    assert predicted["windowsUsed"] == len({each["windowStart"] for each in real}) == windows


async def test_a_forecast_for_the_past_starts_now(shared_admin: AsyncClient) -> None:
    config = await make_config(shared_admin)
    body = {"configName": config.name, "count": 1, "from": "2001-01-01T00:00:00Z"}

    predicted = body_of(await shared_admin.post(FORECAST, json=body))
    slot = await config.assign("event", instant_of("2001-01-01T00:00:00Z"))

    assert predicted["first"] == predicted["last"]
    assert (
        0
        <= (instant_of(slot["scheduledTime"]) - instant_of(predicted["first"])).total_seconds()
        < 60
    )


async def test_a_forecast_beyond_the_year_2200_is_unavailable(shared_admin: AsyncClient) -> None:
    config = await make_config(shared_admin, 1, "P1D")  # Until 2200 there are some 63,000 days.
    body = {"configName": config.name, "count": 100_000, "from": text_of(NOON)}

    response = await shared_admin.post(FORECAST, json=body)

    assert problem(response, 503, "pool-exhausted")["pool"] == config.name


async def test_an_unknown_config_is_not_found(shared_admin: AsyncClient) -> None:
    body = {"configName": "nobody", "count": 1, "from": text_of(NOON)}

    response = await shared_admin.post(FORECAST, json=body)

    assert problem(response, 404, "unknown-pool")["pool"] == "nobody"
