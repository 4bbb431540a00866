"""Configs have versions, one of which is active; a change takes effect at once on all nodes."""

from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, LiteralString

import asyncpg
import pytest
from httpx import AsyncClient

from penstock import Penstock
from penstock.domains.slots.assign import SlotRequest, assign_many
from penstock.domains.slots.config import set_config
from tests.api.scene import Callers, problem
from tests.domains.slots.scene import (
    CONFIG,
    DAY,
    EPOCH,
    MICROSECOND,
    MILLISECOND,
    NOON,
    SECOND,
    SLOTS,
    after,
    body_of,
    instant_of,
    make_config,
    offset_of,
    text_of,
)

OFFICE = {
    "timeZone": "Europe/Berlin",
    "hours": [{"days": ["mon", "tue"], "opens": "09:00", "closes": "17:00"}],
    "holidays": ["TARGET2"],
    "closedDays": ["2030-12-24"],
    "blackouts": [{"from": "2030-01-01T00:00:00Z", "until": "2030-01-02T00:00:00Z"}],
    "cutOff": "16:30",
    "cutOffPolicy": "reject",
}


# ----------------------------------------------------------------------------------- versions


@pytest.mark.covers("D6", "D10", "D22", "D23")
@pytest.mark.parametrize("query", ["", "?name=default"])
async def test_migrations_create_a_default_config_of_100_in_4_seconds(
    admin: AsyncClient, query: str
) -> None:
    config = body_of(await admin.get(CONFIG + query))

    made_at, effective_from = config.pop("createdAt"), config.pop("effectiveFrom")
    assert instant_of(effective_from) <= instant_of(made_at) < datetime.now(UTC)
    assert config == {
        "configId": 1,
        "configName": "default",
        "version": 1,
        "maxPerWindow": 100,
        "windowSize": "PT4S",
        "spacing": "even",
        "horizon": "P366D",
        "calendar": None,
        "strict": False,
        "active": True,
        "createdBy": "migration",
    }


@pytest.mark.covers("D7", "D13")
async def test_a_new_version_deactivates_the_previous_one_and_keeps_it(admin: AsyncClient) -> None:
    body = {"configName": "default", "maxPerWindow": 200, "windowSize": "PT4S"}
    first = body_of(await admin.get(CONFIG))

    second = body_of(await admin.post(CONFIG, json=body), 201)

    assert body_of(await admin.get(CONFIG)) == second
    assert second.items() >= (body | {"version": 2, "active": True}).items()
    versions = body_of(await admin.get(f"{CONFIG}/versions?name=default"))["configs"]
    assert versions == [second, first | {"active": False}]


@pytest.mark.covers("D13")
async def test_any_number_of_names_have_versions_of_their_own(shared_admin: AsyncClient) -> None:
    left, right = await make_config(shared_admin, 1), await make_config(shared_admin, 2)
    for per_window in (3, 4):
        await left.change(maxPerWindow=per_window, windowSize="PT4S")

    versions = [
        body_of(await shared_admin.get(f"{CONFIG}/versions", params={"name": each.name}))["configs"]
        for each in (left, right)
    ]

    assert [
        [(one["version"], one["maxPerWindow"], one["active"]) for one in each] for each in versions
    ] == [
        [(3, 4, True), (2, 3, False), (1, 1, False)],
        [(1, 2, True)],
    ]


@pytest.mark.covers("D13")
async def test_the_database_itself_refuses_a_second_active_version(penstock: Penstock) -> None:
    async with penstock.pool.acquire() as db:
        await set_config(db, "default", who="test", max_per_window=5, window_size=SECOND)

        with pytest.raises(asyncpg.UniqueViolationError, match="slot_config_one_active"):
            await db.execute("UPDATE penstock.slot_config SET is_active = true")


@pytest.mark.parametrize(
    ("statement", "constraint"),
    [
        ("UPDATE penstock.slot_config SET max_per_window = 0", "max_per_window_is_sane"),
        ("UPDATE penstock.slot_config SET max_per_window = -1", "max_per_window_is_sane"),
        ("UPDATE penstock.slot_config SET window_size = '0.9 ms'", "window_size_is_sane"),
        ("UPDATE penstock.slot_config SET window_size = '25 hours'", "window_size_is_sane"),
        (
            "UPDATE penstock.slot_config SET window_size = '1 ms', max_per_window = 1001",
            "max_per_window_fits_the_window",
        ),
        ("UPDATE penstock.slot_config SET spacing = 'odd'", "spacing_is_known"),
        ("UPDATE penstock.slot_config SET horizon = '0'", "horizon_is_sane"),
        (
            "UPDATE penstock.slot_config SET calendar = '{}', cut_off_policy = 'maybe'",
            "cut_off_policy_is_known",
        ),
        (
            "UPDATE penstock.slot_config SET cut_off_policy = 'reject'",
            "cut_off_policy_goes_with_a_calendar",
        ),
        ("UPDATE penstock.slot_pool SET name = ''", "pool_name_is_short"),
    ],
)
async def test_the_database_repeats_the_rules(
    shared_penstock: Penstock, *, statement: LiteralString, constraint: str
) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match=constraint):
        await shared_penstock.pool.execute(statement)


@pytest.mark.covers("D7")
async def test_omitted_fields_keep_their_value(shared_admin: AsyncClient) -> None:
    """A request with the document's three fields must not remove the opening hours."""
    config = await make_config(
        shared_admin, spacing="random", horizon="P30D", calendar=OFFICE, strict=True
    )

    changed = await config.change(maxPerWindow=8, windowSize="PT2S")

    assert (changed["maxPerWindow"], changed["windowSize"]) == (8, "PT2S")
    assert (changed["spacing"], changed["horizon"]) == ("random", "P30D")
    assert changed["calendar"] == OFFICE
    assert changed["strict"] is True


async def test_a_pool_becomes_strict_and_lenient_again_with_the_next_request(
    shared_admin: AsyncClient,
) -> None:
    """Its slots stay; only what another time is answered with changes."""
    config = await make_config(shared_admin)
    other_time = config.request("event", after(60))
    await config.assign("event")

    await config.change(maxPerWindow=4, windowSize="PT4S", strict=True)
    refused = await shared_admin.post(SLOTS, json=other_time)
    same = await config.assign("event")
    lenient = await config.change(maxPerWindow=4, windowSize="PT4S", strict=False)
    given = body_of(await shared_admin.post(SLOTS, json=other_time))

    assert problem(refused, 409, "slot-conflict")["existing"]["requestedTime"] == text_of(NOON)
    assert given == same
    assert given["outcome"] == "existing"
    assert lenient["strict"] is False
    versions = body_of(await shared_admin.get(f"{CONFIG}/versions?name={config.name}"))["configs"]
    assert [each["strict"] for each in versions] == [False, True, False]


async def test_sql_of_the_previous_release_keeps_a_pool_strict(penstock: Penstock) -> None:
    """It calls the function without the last parameter."""
    call: LiteralString = (
        "SELECT penstock.set_slot_config('sql', 5, interval '1 second', 'even', "
        "interval '366 days', NULL, NULL, NULL, NULL, NULL, NULL, 'test'{})"
    )

    await penstock.pool.execute(call.format(", is_strict => true"))
    await penstock.pool.execute(call.format(""))

    rows = await penstock.pool.fetch(
        "SELECT pool.is_strict, config.is_strict FROM penstock.slot_pool AS pool "
        "JOIN penstock.slot_config AS config USING (pool_id) WHERE name = 'sql'"
    )
    assert [tuple(row) for row in rows] == [(True, True), (True, True)]


async def test_a_calendar_of_null_is_removed(shared_admin: AsyncClient) -> None:
    config = await make_config(shared_admin, calendar=OFFICE)

    changed = await config.change(maxPerWindow=4, windowSize="PT4S", calendar=None)

    assert changed["calendar"] is None
    assert offset_of(await config.assign("event")) == 0


async def test_an_unknown_config_is_not_found(shared_admin: AsyncClient) -> None:
    for path in (CONFIG, f"{CONFIG}/versions"):
        response = await shared_admin.get(path, params={"name": "nobody"})

        assert problem(response, 404, "unknown-pool")["pool"] == "nobody"


async def test_a_change_is_in_the_audit_with_before_and_after(callers: Callers) -> None:
    config = await make_config(callers.admin)
    made = await config.change(maxPerWindow=8, windowSize="PT4S", strict=True)

    lines = body_of(await callers.admin.get("/audit", params={"subject": config.name}))["items"]

    newest = lines[0]
    assert newest["action"] == "slots.configured"
    assert newest["who"] == made["createdBy"]
    assert (newest["before"]["max_per_window"], newest["after"]["max_per_window"]) == (4, 8)
    assert (newest["before"]["is_strict"], newest["after"]["is_strict"]) == (False, True)


# --------------------------------------------------------------------------------- every node


@pytest.mark.covers("D8", "D51", "D81", "D92")
async def test_a_change_takes_effect_at_once_on_every_node(
    admin: AsyncClient, other_admin: AsyncClient
) -> None:
    """The rule is read in the transaction that books, so there is no stale cache."""
    config = await make_config(admin, 1)

    given: list[float] = []
    for number, per_window in enumerate([1, 2, 4, 8]):
        changed = await config.change(maxPerWindow=per_window, windowSize="PT4S")
        request = config.request(f"event-{number}", after(60 * number + 0.1))
        slot = body_of(await other_admin.post(SLOTS, json=request))
        given.append(offset_of(slot) - 60 * number)
        shown = body_of(await other_admin.get(CONFIG, params={"name": config.name}))
        assert shown == changed

    assert given == [4, 2, 1, 0.5]


@pytest.mark.covers("D8", "D92")
async def test_flushing_the_cache_has_nothing_to_do(shared_admin: AsyncClient) -> None:
    """Scripts of the rate limiter that slots replace keep working."""
    response = await shared_admin.post("/admin/rate-limit/cache/flush")

    assert body_of(response) == {"flushed": 0}


@pytest.mark.covers("D77", "D86")
async def test_a_window_that_one_node_found_full_can_be_freed_by_another(
    admin: AsyncClient, other_admin: AsyncClient
) -> None:
    """No node caches that a window is full: neither after a cancel nor after a raise."""
    config = await make_config(admin, 2)
    await config.fill(2)
    over = body_of(await other_admin.post(SLOTS, json=config.request("over")))

    await admin.delete(f"{SLOTS}/{config.event('filler-1')}")
    freed = body_of(await other_admin.post(SLOTS, json=config.request("freed")))
    await config.change(maxPerWindow=4, windowSize="PT4S")
    raised = body_of(await other_admin.post(SLOTS, json=config.request("raised")))

    assert [offset_of(slot) for slot in (over, freed, raised)] == [4, 2, 1]


# ---------------------------------------------------------------------- effects of a change


@pytest.mark.covers("D49", "D94")
async def test_raising_80_of_100_to_200_gives_120_more_and_none_at_an_old_instant(
    shared_admin: AsyncClient,
) -> None:
    config = await make_config(shared_admin, 100)
    before = await config.fill(80, name="before")

    await config.change(maxPerWindow=200, windowSize="PT4S")
    new = await config.fill(121, name="new")

    assert [offset_of(slot) < 4 for slot in new] == [True] * 120 + [False]
    times = [offset_of(slot) for slot in [*before, *new]]
    assert len(set(times)) == 201
    slots = await config.list_all()
    assert [slot["windowStart"] for slot in slots].count(text_of(NOON)) == 200
    # They are evenly spaced, too: a window of 200 has a cell every 20 ms.
    apart = [later - earlier for earlier, later in pairwise(sorted(times))]
    assert min(apart) >= 0.02 - 1e-9


@pytest.mark.covers("D49")
async def test_raising_to_a_number_that_is_no_multiple_wastes_no_place(
    shared_admin: AsyncClient,
) -> None:
    """The places of 7 and of 10 in a window hardly coincide, but ten events still fit."""
    config = await make_config(shared_admin, 7)
    before = await config.fill(5, name="before")

    await config.change(maxPerWindow=10, windowSize="PT4S")
    new = await config.fill(6, name="new")

    assert [offset_of(slot) < 4 for slot in new] == [True] * 5 + [False]
    assert len({slot["scheduledTime"] for slot in [*before, *new]}) == 11


@pytest.mark.covers("D50")
async def test_lowering_80_of_100_to_50_fills_the_window_and_moves_no_slot(
    shared_admin: AsyncClient,
) -> None:
    config = await make_config(shared_admin, 100)
    await config.fill(80)
    before = await config.list_all()

    await config.change(maxPerWindow=50, windowSize="PT4S")
    new = await config.fill(51, name="new")

    assert [offset_of(slot) // 4 for slot in new] == [1] * 50 + [2]
    assert (await config.list_all())[:80] == before


@pytest.mark.covers("D53")
async def test_a_slot_stores_the_version_under_which_it_was_booked(
    shared_admin: AsyncClient,
) -> None:
    config = await make_config(shared_admin)
    made = [body_of(await shared_admin.get(CONFIG, params={"name": config.name}))]
    await config.assign("first")
    made.append(await config.change(maxPerWindow=8, windowSize="PT4S"))
    await config.assign("second")

    slots = [await config.show("first"), await config.show("second")]

    assert [slot["configId"] for slot in slots] == [each["configId"] for each in made]


@pytest.mark.covers("D52")
async def test_a_new_window_size_takes_effect_at_the_next_boundary_and_moves_no_slot(
    shared_admin: AsyncClient,
) -> None:
    """The document forbids it while events are in flight, because its counters become invalid."""
    config = await make_config(shared_admin)
    await config.fill(8)  # Each second from 0 to 7.
    before = await config.list_all()

    changed = await config.change(maxPerWindow=3, windowSize="PT6S")  # One every two seconds.
    slots = [await config.assign(f"new-{number}") for number in range(3)]

    edge = instant_of(changed["effectiveFrom"])
    assert (edge - EPOCH) % (6 * SECOND) == 0 * SECOND
    assert instant_of(changed["createdAt"]) < edge <= instant_of(changed["createdAt"]) + 6 * SECOND
    assert (await config.list_all())[:8] == before
    # From 6 on, a window of three has the two old ones.
    assert [offset_of(slot) for slot in slots] == [10, 12, 14]


async def test_until_that_boundary_the_old_windows_stay_in_force(
    penstock: Penstock,
) -> None:
    """With `now` as a parameter; the test would take hours otherwise."""
    now = EPOCH + 20_000 * DAY + 9 * SECOND
    async with penstock.pool.acquire() as db:
        rule: dict[str, Any] = {"who": "test", "horizon": 3660 * DAY}
        await set_config(db, "p", max_per_window=4, window_size=4 * SECOND, now=now, **rule)

        changed = await set_config(
            db, "p", max_per_window=1, window_size=10 * SECOND, now=now, **rule
        )
        answers = await assign_many(
            db, "p", [SlotRequest(f"event-{number}", now) for number in range(4)], now=now
        )

    assert changed.effective_at == now + SECOND
    slots = [answer.slot for answer in answers]
    offsets = [(slot.scheduled_at - now) // SECOND for slot in slots if slot is not None]
    assert offsets == [0, 1, 11, 21]


# ------------------------------------------------------------------------------------ spacing


@pytest.mark.covers("D26", "D27", "D29")
async def test_random_spacing_stays_in_the_window_and_after_the_requested_time(
    shared_admin: AsyncClient, shared_penstock: Penstock
) -> None:
    """The document's jitter, as an option: the count is exact, the instant is random."""
    config = await make_config(shared_admin, 100, spacing="random")
    asked = after(1)

    await config.fill(275, asked)

    rows = await shared_penstock.pool.fetch(
        """
        SELECT wndw_strt_ts, computed_sched_ts - wndw_strt_ts AS jitter
        FROM penstock.rl_event_slot_dtl WHERE event_id LIKE $1 || '-%' ORDER BY wndw_strt_ts
        """,
        config.name,
    )
    first, second, third = (
        [row["jitter"] for row in rows if row["wndw_strt_ts"] == start]
        for start in (NOON, after(4), after(8))
    )
    assert (len(first), len(second), len(third)) == (75, 100, 100)
    assert all(SECOND <= jitter < 4 * SECOND for jitter in first)
    assert all(0 * SECOND <= jitter < 4 * SECOND for jitter in [*second, *third])
    # The chance that a hundred draws all miss an eighth of the window is 1 in 500,000.
    for jitters, low in ((first, SECOND), (second, 0 * SECOND), (third, 0 * SECOND)):
        assert min(jitters) < low + SECOND / 2
        assert max(jitters) > 3.5 * SECOND
        assert len({jitter % (40 * MILLISECOND) for jitter in jitters}) > len(jitters) // 2
    # Uniform: of 75 draws 25 are expected in each second, of 200 draws 50. The bounds are more than
    # four and a half standard deviations away.
    in_first = Counter(jitter // SECOND for jitter in first)
    in_later = Counter(jitter // SECOND for jitter in [*second, *third])
    assert all(in_first[number] > 6 for number in (1, 2, 3))
    assert all(in_later[number] > 22 for number in (0, 1, 2, 3))


@pytest.mark.covers("D3")
async def test_random_spacing_is_drawn_once(shared_admin: AsyncClient) -> None:
    config = await make_config(shared_admin, 1, spacing="random")

    answers = [await config.assign("event") for _ in range(3)]

    assert len({(each["scheduledTime"], each["delayMs"]) for each in answers}) == 1


@pytest.mark.covers("D26", "D27", "D29")
async def test_unless_asked_otherwise_places_are_even_and_never_before_the_time_asked_for(
    shared_admin: AsyncClient, shared_penstock: Penstock
) -> None:
    """Which keeps every interval of a window's length within the capacity; chance does not."""
    config = await make_config(shared_admin)

    await config.fill(6, after(1.5))

    rows = await shared_penstock.pool.fetch(
        """
        SELECT wndw_strt_ts, computed_sched_ts FROM penstock.rl_event_slot_dtl
        WHERE event_id LIKE $1 || '-%' ORDER BY computed_sched_ts
        """,
        config.name,
    )
    assert [(row["wndw_strt_ts"], row["computed_sched_ts"]) for row in rows] == [
        *((NOON, after(second)) for second in (2, 3)),
        *((after(4), after(second)) for second in (4, 5, 6, 7)),
    ]


async def test_even_spacing_is_a_grid_in_whole_microseconds(shared_admin: AsyncClient) -> None:
    config = await make_config(shared_admin, 3, "PT1S")

    slots = [await config.assign(f"event-{number}") for number in range(4)]

    thirds = [NOON, after(0.333334), after(0.666667), after(1)]
    assert [instant_of(slot["scheduledTime"]) for slot in slots] == thirds


async def test_the_finest_rule_gives_every_microsecond_once(shared_admin: AsyncClient) -> None:
    config = await make_config(shared_admin, 1_000, "PT0.001S")

    slots = await config.fill(2_500)

    times = [instant_of(slot["scheduledTime"]) for slot in slots]
    assert times == [NOON + number * MICROSECOND for number in range(2_500)]
