"""A config may have opening hours, holidays, blackouts and a cut-off with a policy."""

from datetime import date, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from httpx import AsyncClient

from tests.api.scene import problem
from tests.domains.slots.scene import (
    DAY,
    HOUR,
    NOON,
    SLOTS,
    Config,
    after,
    body_of,
    instant_of,
    make_config,
    text_of,
)

BERLIN = ZoneInfo("Europe/Berlin")
EVERY_DAY = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
NEXT_YEAR = NOON.year + 1
MINUTE = timedelta(minutes=1)


def hours(opens: str, closes: str) -> list[dict[str, Any]]:
    return [{"days": EVERY_DAY, "opens": opens, "closes": closes}]


def last_sunday(month: int) -> date:
    """Return the day on which clocks in Berlin change."""
    last = date(NEXT_YEAR, month, 31)
    return last - (last.weekday() + 1) % 7 * DAY


async def pool_with(
    client: AsyncClient, per_window: int = 1, size: str = "PT1H", **calendar: Any
) -> Config:
    """Make a config with a calendar, in UTC by default."""
    return await make_config(
        client, per_window, size, horizon="P3660D", calendar={"timeZone": "UTC"} | calendar
    )


async def given(config: Config, count: int, at: datetime) -> list[datetime]:
    return [instant_of(slot["scheduledTime"]) for slot in await config.fill(count, at)]


# -------------------------------------------------------------------------------------- open


@pytest.mark.covers("D82")
async def test_closed_hours_are_skipped(shared_admin: AsyncClient) -> None:
    config = await pool_with(shared_admin, hours=hours("11:00", "14:00"))

    times = await given(config, 5, NOON)

    assert times == [
        NOON,
        NOON + HOUR,
        NOON + DAY - HOUR,
        NOON + DAY,
        NOON + DAY + HOUR,
    ]


@pytest.mark.covers("D82")
async def test_a_partly_open_window_has_only_the_slots_of_its_open_part(
    shared_admin: AsyncClient,
) -> None:
    """Open from 12:01 to 12:03, with a slot every 50 s since midnight."""
    config = await pool_with(shared_admin, 6, "PT5M", hours=hours("12:01", "12:03"))

    times = await given(config, 4, NOON)

    assert times == [after(100), after(150), after(100) + DAY, after(150) + DAY]


@pytest.mark.covers("D82")
@pytest.mark.parametrize(("month", "open_hours"), [(3, 3), (10, 5)])
async def test_hours_are_local_time_on_days_with_a_clock_change(
    shared_admin: AsyncClient, *, month: int, open_hours: int
) -> None:
    """From 01:00 to 05:00 is four hours, except on two days a year."""
    config = await pool_with(shared_admin, timeZone="Europe/Berlin", hours=hours("01:00", "05:00"))
    sunday = last_sunday(month)
    opens = datetime(sunday.year, sunday.month, sunday.day, 1, tzinfo=BERLIN)

    times = await given(config, open_hours + 1, opens)

    walls = [at.astimezone(BERLIN) for at in times]
    assert {wall.date() for wall in walls[:-1]} == {sunday}
    assert all(later - earlier == HOUR for earlier, later in pairwise(times[:-1]))
    assert (walls[-1].date(), walls[-1].hour) == (sunday + DAY, 1)


@pytest.mark.covers("D82")
@pytest.mark.parametrize(
    ("holidays", "month", "day"),
    [(["TARGET2"], 5, 1), (["TARGET2"], 12, 25), (["US-FED"], 11, 11), (["DE-BE"], 10, 3)],
)
async def test_holidays_are_skipped(
    shared_admin: AsyncClient, *, holidays: list[str], month: int, day: int
) -> None:
    config = await pool_with(shared_admin, hours=hours("12:00", "13:00"), holidays=holidays)
    holiday = datetime(NEXT_YEAR, month, day, 12, tzinfo=NOON.tzinfo)

    times = await given(config, 2, holiday - DAY)

    assert times[0] == holiday - DAY
    assert holiday < times[1] <= holiday + 3 * DAY


@pytest.mark.covers("D82")
async def test_closed_days_are_skipped(shared_admin: AsyncClient) -> None:
    config = await pool_with(
        shared_admin,
        hours=hours("12:00", "13:00"),
        closedDays=[f"{NOON + DAY:%Y-%m-%d}", f"{NOON + 2 * DAY:%Y-%m-%d}"],
    )

    assert await given(config, 2, NOON) == [NOON, NOON + 3 * DAY]


@pytest.mark.covers("D82")
async def test_blackouts_are_skipped(shared_admin: AsyncClient) -> None:
    blackout = {"from": text_of(after(2)), "until": text_of(after(3600.5))}
    config = await pool_with(shared_admin, 4, "PT4S", blackouts=[blackout])

    times = await given(config, 4, NOON)

    assert times == [NOON, after(1), after(3601), after(3602)]


@pytest.mark.covers("D82")
async def test_a_later_blackout_keeps_existing_slots_and_accepts_no_new_ones(
    shared_admin: AsyncClient,
) -> None:
    config = await make_config(shared_admin)
    await config.fill(4)
    before = await config.list_all()

    blackout = {"from": text_of(NOON), "until": text_of(NOON + HOUR)}
    calendar = {"timeZone": "UTC", "blackouts": [blackout]}
    await config.change(maxPerWindow=4, windowSize="PT4S", calendar=calendar)
    slot = await config.assign("new")

    assert instant_of(slot["scheduledTime"]) == NOON + HOUR
    assert (await config.list_all())[:4] == before


async def test_opening_periods_are_extended_as_far_as_requests_need(
    shared_admin: AsyncClient,
) -> None:
    """With one slot a day, 4,000 slots need more than the ten years computed at first."""
    config = await pool_with(shared_admin, hours=hours("12:00", "13:00"))

    times = await given(config, 4_000, NOON)

    assert times == [NOON + number * DAY for number in range(4_000)]


# ------------------------------------------------------------------------------------ cut-off


async def test_after_the_cut_off_the_slot_is_in_the_next_open_window(
    shared_admin: AsyncClient,
) -> None:
    config = await pool_with(
        shared_admin,
        4,
        hours=hours("08:00", "16:00"),
        cutOff="11:00",
        cutOffPolicy="next_open_window",
    )

    early = await config.assign("early", NOON - HOUR - MINUTE)
    late = await config.assign("late", NOON - HOUR)

    assert instant_of(early["scheduledTime"]) == NOON - HOUR
    assert instant_of(late["scheduledTime"]) == NOON + 20 * HOUR


async def test_a_full_day_overflows_into_the_next_one(shared_admin: AsyncClient) -> None:
    config = await pool_with(
        shared_admin,
        hours=hours("12:00", "14:00"),
        cutOff="13:00",
        cutOffPolicy="next_open_window",
    )

    times = await given(config, 3, NOON)

    assert times == [NOON, NOON + HOUR, NOON + DAY]


async def test_the_policy_reject_refuses_after_the_cut_off_and_on_a_full_day(
    shared_admin: AsyncClient,
) -> None:
    config = await pool_with(
        shared_admin, hours=hours("11:00", "14:00"), cutOff="13:00", cutOffPolicy="reject"
    )

    late = await shared_admin.post(SLOTS, json=config.request("late", NOON + HOUR))
    await config.fill(2)
    full = await shared_admin.post(SLOTS, json=config.request("full"))
    batch = await shared_admin.post(
        f"{SLOTS}/batch",
        json=[
            config.request("late", NOON + HOUR),
            config.request("full"),
            config.request("on", NOON - HOUR),
        ],
    )

    assert problem(late, 409, "slot-refused")["reason"] == "after_cut_off"
    assert problem(full, 409, "slot-refused")["reason"] == "day_full"
    assert [each["outcome"] for each in body_of(batch)] == ["after_cut_off", "day_full", "assigned"]
    assert len(await config.list_all()) == 3


async def test_the_policy_overbook_stays_in_the_day_with_unique_instants(
    shared_admin: AsyncClient,
) -> None:
    """Wages must be paid today, even above the capacity, but not all in one microsecond."""
    config = await pool_with(
        shared_admin, hours=hours("11:00", "14:00"), cutOff="12:30", cutOffPolicy="overbook"
    )

    times = await given(config, 20, NOON)

    assert times[:2] == [NOON, NOON + HOUR]
    assert all(NOON <= at < NOON + 2 * HOUR for at in times)
    assert len(set(times)) == 20
    tomorrow = await config.assign("tomorrow", NOON + DAY)
    assert instant_of(tomorrow["scheduledTime"]) == NOON + DAY
    late = await config.assign("late", NOON + HOUR + 59 * MINUTE)
    assert instant_of(late["scheduledTime"]) == NOON + HOUR + 59 * MINUTE


async def test_overbooked_slots_count_and_can_be_cancelled(shared_admin: AsyncClient) -> None:
    config = await pool_with(
        shared_admin, hours=hours("12:00", "14:00"), cutOff="13:00", cutOffPolicy="overbook"
    )
    await config.fill(4)

    for number in range(3):
        await shared_admin.delete(f"{SLOTS}/{config.event(f'filler-{number}')}")
    (left,) = await config.list_all()
    await config.fill(1, name="new")

    taken = {instant_of(slot["windowStart"]) for slot in await config.list_all()}
    assert taken == {NOON, NOON + HOUR}
    assert instant_of(left["windowStart"]) in taken
