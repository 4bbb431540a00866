"""Assigning slots: at or after the requested time, under capacity, one slot per event."""

import asyncio
import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from urllib.parse import quote

import pytest
from httpx import AsyncClient

from penstock import Penstock
from penstock.domains.slots.assign import SlotRequest, assign
from penstock.domains.slots.inspect import read_slot
from penstock.domains.slots.slot import instant_text
from tests.api.scene import Callers, problem
from tests.domains.slots.scene import (
    DAY,
    EPOCH,
    HOUR,
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

# ------------------------------------------------------------------------ request and answer


@pytest.mark.covers("D1", "D2", "D10", "D22", "D23")
async def test_the_documents_request_gets_the_documents_answer(admin: AsyncClient) -> None:
    """Callers of the rate limiter that slots replace find its fields, and one more."""
    day = f"{NOON:%Y-%m-%d}"
    request = {"configName": "default", "requestedTime": f"{day}T12:00:00Z"}

    first = await admin.post(SLOTS, json=request | {"eventId": "pay-123"})
    second = await admin.post(SLOTS, json=request | {"eventId": "pay-124"})

    assert first.status_code == 200
    assert first.headers["content-type"] == "application/json"
    assert first.text == (
        f'{{"eventId":"pay-123","scheduledTime":"{day}T12:00:00Z","delayMs":0,'
        '"outcome":"assigned"}'
    )
    # A hundred in four seconds are 40 ms apart.
    assert second.text == (
        f'{{"eventId":"pay-124","scheduledTime":"{day}T12:00:00.040Z","delayMs":40,'
        '"outcome":"assigned"}'
    )


@pytest.mark.covers("D1", "D2", "D7", "D10", "D89")
async def test_the_documents_unchanged_example_is_answered_from_now_on(
    admin: AsyncClient,
) -> None:
    """Its requested time is in the past; the delay counts from it all the same."""
    config = """{
    "configName": "default",
    "maxPerWindow": 100,
    "windowSize": "PT4S"
  }"""
    request = """{
  "eventId": "pay-123",
  "configName": "default",
  "requestedTime": "2025-06-01T12:00:00Z"
}"""
    headers = {"Content-Type": "application/json"}
    before = datetime.now(UTC) - 60 * SECOND  # The database's clock is another one.

    seeded = await admin.post("/admin/rate-limit/config", content=config, headers=headers)
    response = await admin.post("/api/v1/slots", content=request, headers=headers)

    assert seeded.status_code == 201
    slot = body_of(response, 200)
    assert list(slot) == ["eventId", "scheduledTime", "delayMs", "outcome"]
    assert slot["eventId"] == "pay-123"
    scheduled_at = instant_of(slot["scheduledTime"])
    assert before < scheduled_at < before + HOUR
    requested_at = datetime(2025, 6, 1, 12, tzinfo=UTC)
    assert slot["delayMs"] == (scheduled_at - requested_at) // MILLISECOND


@pytest.mark.covers("D2", "D32")
@pytest.mark.parametrize(
    ("asked", "given", "delay_ms"),
    [
        (after(2.371), "12:00:02.400Z", 29),
        (after(2.4), "12:00:02.400Z", 0),
        (after(2.400001), "12:00:02.440Z", 39),
        (after(2.371).astimezone(), "12:00:02.400Z", 29),
    ],
)
async def test_the_delay_is_in_whole_milliseconds(
    shared_admin: AsyncClient, *, asked: datetime, given: str, delay_ms: int
) -> None:
    config = await make_config(shared_admin, 100)

    slot = await config.assign("event", asked)

    assert slot == {
        "eventId": config.event("event"),
        "scheduledTime": f"{NOON:%Y-%m-%d}T{given}",
        "delayMs": delay_ms,
        "outcome": "assigned",
    }


@pytest.mark.covers("D32")
async def test_the_verb_returns_the_slot_with_its_delay(penstock: Penstock) -> None:
    async with penstock.pool.acquire() as db:
        slot = await assign(db, "default", SlotRequest("event", after(2.371)))
        stored = await read_slot(db, "event")

    assert slot == stored
    assert slot.scheduled_at == after(2.4)
    assert slot.delay_ms == 29


@pytest.mark.covers("D60")
async def test_a_request_without_a_config_name_uses_default(admin: AsyncClient) -> None:
    request = {"eventId": "event", "requestedTime": text_of(NOON)}

    body_of(await admin.post(SLOTS, json=request))

    assert body_of(await admin.get(f"{SLOTS}/event"))["configName"] == "default"


@pytest.mark.covers("D4", "D43")
async def test_an_unknown_config_is_not_found(callers: Callers, penstock: Penstock) -> None:
    request = {"eventId": "event", "configName": "nobody", "requestedTime": text_of(NOON)}

    response = await callers.producer.post(SLOTS, json=request)

    assert problem(response, 404, "unknown-pool")["pool"] == "nobody"
    assert await penstock.pool.fetchval("SELECT count(*) FROM penstock.slot") == 0


async def test_a_slot_can_be_looked_up(shared_admin: AsyncClient) -> None:
    config = await make_config(shared_admin, 100)
    assigned = await config.assign("event", after(5.371))
    before = datetime.now(UTC)

    slot = await config.show("event")

    assert list(slot) == [
        "eventId",
        "configName",
        "requestedTime",
        "scheduledTime",
        "delayMs",
        "windowStart",
        "configId",
        "createdAt",
    ]
    assigned.pop("outcome")
    assert assigned.items() <= slot.items()
    assert slot["configName"] == config.name
    assert instant_of(slot["requestedTime"]) == after(5.371)
    assert instant_of(slot["windowStart"]) == after(4)
    assert before - 60 * SECOND < instant_of(slot["createdAt"]) <= before


async def test_the_slot_of_an_unknown_event_is_not_found(shared_admin: AsyncClient) -> None:
    response = await shared_admin.get(f"{SLOTS}/nobody")

    assert problem(response, 404, "unknown-slot")["event_id"] == "nobody"


@pytest.mark.parametrize(
    "event",
    ["a/b", "../x", "a b", "a\nb", "a\n", "é" * 50, "100%", "%2F", "?x=1#y", "💧", " "],
)
async def test_an_event_of_any_name_can_be_looked_up_and_cancelled(
    admin: AsyncClient, event: str
) -> None:
    """Ids may contain a slash, such as 2026/17; a slot that cannot be cancelled is lost."""
    request = {"eventId": event, "requestedTime": text_of(NOON)}
    path = f"{SLOTS}/{quote(event, safe='')}"

    given = body_of(await admin.post(SLOTS, json=request))
    shown = body_of(await admin.get(path))
    cancelled = await admin.delete(path)

    assert given["eventId"] == shown["eventId"] == event
    assert cancelled.status_code == 204
    assert (await admin.get(path)).status_code == 404


# ------------------------------------------------------------------------- repeated requests


@pytest.mark.covers("D3", "D33")
async def test_a_repeated_request_gets_the_same_slot(
    shared_admin: AsyncClient, shared_penstock: Penstock
) -> None:
    """A caller that lost the answer repeats the request; that must not take a second slot."""
    config = await make_config(shared_admin)
    request = config.request("event", after(0.5))
    zoned = request | {"requestedTime": text_of(after(0.5)).replace("Z", "+00:00")}

    first = await shared_admin.post(SLOTS, json=request)
    await config.fill(3)
    again = [await shared_admin.post(SLOTS, json=each) for each in (request, zoned)]

    booked_before = {"configName": config.name, "requestedTime": instant_text(after(0.5))}
    for response in again:
        known = body_of(first) | {"outcome": "existing"} | booked_before
        assert body_of(response, 200) == known
    counted = await shared_penstock.pool.fetchval(
        "SELECT sum(slot_ct) FROM penstock.rl_wndw_ct WHERE wndw_config_nm = $1", config.name
    )
    assert counted == 4


@pytest.mark.covers("D3", "D33", "D85")
@pytest.mark.parametrize("other", ["earlier", "later", "beyond the horizon", "config"])
async def test_the_same_event_with_another_time_or_config_gets_its_slot(
    shared_admin: AsyncClient, other: str
) -> None:
    """A caller that computes now anew on a retry must get the slot that it has, not an error."""
    config, elsewhere = await make_config(shared_admin), await make_config(shared_admin)
    request = config.request("event", after(1.5)) | {"requestedTime": instant_text(after(1.5))}
    given = body_of(await shared_admin.post(SLOTS, json=request))
    times = {"earlier": after(-3600), "later": after(3600), "beyond the horizon": after(40_000_000)}
    change = {"configName": elsewhere.name}
    if other in times:
        change = {"requestedTime": text_of(times[other])}

    response = await shared_admin.post(SLOTS, json=request | change)

    assert given["delayMs"] == 500
    # The delay counts from the time that the slot was booked for, which the answer names.
    assert body_of(response, 200) == given | request | {"outcome": "existing"}
    assert [slot["eventId"] for slot in await config.list_all()] == [given["eventId"]]
    assert await elsewhere.list_all() == []


@pytest.mark.covers("D85")
@pytest.mark.parametrize("other", ["time", "config"])
async def test_in_a_strict_config_another_time_or_config_is_a_conflict_with_the_slot(
    shared_admin: AsyncClient, other: str
) -> None:
    """For callers whose ids may collide: they would take another event's slot for their own."""
    config = await make_config(shared_admin, strict=True)
    elsewhere = await make_config(shared_admin, strict=True)
    request = config.request("event", after(1))
    given = body_of(await shared_admin.post(SLOTS, json=request))
    change = {"requestedTime": text_of(after(2))}
    if other == "config":
        change = {"configName": elsewhere.name}

    response = await shared_admin.post(SLOTS, json=request | change)

    given.pop("outcome")
    refusal = problem(response, 409, "slot-conflict")
    assert refusal["event_id"] == given["eventId"]
    assert refusal["existing"] == request | given
    assert [slot["eventId"] for slot in await config.list_all()] == [given["eventId"]]
    assert await elsewhere.list_all() == []


@pytest.mark.covers("D47")
async def test_concurrent_requests_for_one_event_all_get_one_slot(
    admin: AsyncClient, other_admin: AsyncClient, penstock: Penstock
) -> None:
    """Retries may run concurrently, on one node and on several, each with its own time."""
    responses = await asyncio.gather(
        *(
            client.post(SLOTS, json={"eventId": "event", "requestedTime": text_of(after(number))})
            for number, client in enumerate([admin, other_admin] * 20)
        )
    )

    answers = [body_of(response) for response in responses]
    outcomes = [each["outcome"] for each in answers]
    assert sorted(outcomes) == ["assigned"] + ["existing"] * 39
    assert len({(each["scheduledTime"], each["delayMs"]) for each in answers}) == 1
    assert await penstock.pool.fetchval("SELECT sum(slot_ct) FROM penstock.rl_wndw_ct") == 1
    taken = await penstock.pool.fetchval(
        "SELECT sum(last_cell - first_cell + 1) FROM penstock.slot_run"
    )
    assert taken == 1


@pytest.mark.covers("D47")
async def test_an_event_requested_in_two_configs_at_once_gets_one_slot(
    admin: AsyncClient, other_admin: AsyncClient, penstock: Penstock
) -> None:
    """The second request must free its cell, otherwise capacity would leak."""
    names = [(await make_config(admin)).name, (await make_config(admin)).name]
    events = [f"event-{number}" for number in range(50)]

    responses = await asyncio.gather(
        *(
            client.post(
                SLOTS,
                json={"eventId": event, "configName": name, "requestedTime": text_of(NOON)},
            )
            for event in events
            for client, name in zip([admin, other_admin], names, strict=True)
        )
    )

    outcomes = sorted(body_of(response)["outcome"] for response in responses)
    assert outcomes == ["assigned"] * 50 + ["existing"] * 50
    taken = await penstock.pool.fetchval(
        "SELECT sum(last_cell - first_cell + 1) FROM penstock.slot_run"
    )
    assert taken == await penstock.pool.fetchval("SELECT count(*) FROM penstock.slot") == 50


# ------------------------------------------------------------------------------------ windows


@pytest.mark.covers("D24", "D88")
@pytest.mark.parametrize(
    ("size", "window"),
    [
        ("PT4S", 4 * SECOND),
        ("PT7S", 7 * SECOND),
        ("PT0.5S", SECOND / 2),
        ("PT0.001S", MILLISECOND),
        ("PT1H1M1.5S", timedelta(seconds=3661.5)),
        ("P1D", DAY),
    ],
)
async def test_windows_begin_at_multiples_of_their_size_since_1970(
    shared_admin: AsyncClient, *, size: str, window: timedelta
) -> None:
    """Also windows below a second, and sizes that do not divide a day."""
    config = await make_config(shared_admin, 3, size)
    asked = after(0.123456)

    for number in range(7):
        await config.assign(f"event-{number}", asked)

    slots = await config.list_all()
    for slot in slots:
        into_window = (instant_of(slot["windowStart"]) - EPOCH) % window
        assert into_window == timedelta(0)
        assert instant_of(slot["scheduledTime"]) >= instant_of(slot["windowStart"])
        assert instant_of(slot["scheduledTime"]) < instant_of(slot["windowStart"]) + window
        assert instant_of(slot["scheduledTime"]) >= asked
    later = [
        slot["windowStart"] for slot in slots if slot["windowStart"] != slots[0]["windowStart"]
    ]
    assert all(later.count(start) <= 3 for start in later)
    # The third after it is at the same place of the next window.
    first, *_, fourth = [instant_of(slot["scheduledTime"]) for slot in slots[:4]]
    assert fourth - first == window


@pytest.mark.covers("D28", "D31")
async def test_when_a_window_is_full_the_next_one_is_used(shared_admin: AsyncClient) -> None:
    config = await make_config(shared_admin)

    slots = [await config.assign(f"event-{number}") for number in range(9)]

    assert [offset_of(slot) for slot in slots] == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    starts = [instant_of(slot["windowStart"]) for slot in await config.list_all()]
    assert starts == [NOON] * 4 + [after(4)] * 4 + [after(8)]


@pytest.mark.covers("D25", "D28")
@pytest.mark.parametrize("elapsed_ms", [0, 1, 40, 1000, 1999, 2500, 3920, 3960])
async def test_the_first_window_offers_its_remaining_share(
    shared_admin: AsyncClient, elapsed_ms: int
) -> None:
    config = await make_config(shared_admin, 100)
    asked = NOON + elapsed_ms * MILLISECOND

    await config.fill(150, asked)

    slots = await config.list_all()
    in_first = [slot for slot in slots if instant_of(slot["windowStart"]) == NOON]
    in_second = [slot for slot in slots if instant_of(slot["windowStart"]) == after(4)]
    assert len(in_first) == 100 * (4000 - elapsed_ms) // 4000
    assert len(in_second) == min(100, 150 - len(in_first))
    assert all(instant_of(slot["scheduledTime"]) >= asked for slot in slots)


@pytest.mark.covers("D87")
@pytest.mark.parametrize("elapsed_ms", [3961, 3980, 3999])
async def test_in_the_last_milliseconds_of_a_window_the_slot_is_in_the_next_one(
    shared_admin: AsyncClient, elapsed_ms: int
) -> None:
    """The remaining share is zero there; the request must still get a slot."""
    config = await make_config(shared_admin, 100)

    slot = await config.assign("event", NOON + elapsed_ms * MILLISECOND)

    assert offset_of(slot) == 4
    assert slot["delayMs"] == 4000 - elapsed_ms


@pytest.mark.covers("D87")
async def test_with_one_event_per_window_it_is_at_the_windows_start(
    shared_admin: AsyncClient,
) -> None:
    config = await make_config(shared_admin, 1)

    slots = [
        await config.assign("exactly"),
        await config.assign("just after", NOON + MICROSECOND),
        await config.assign("just before the end", after(4) - MICROSECOND),
        await config.assign("at the start again"),
    ]

    assert [offset_of(slot) for slot in slots] == [0, 4, 8, 12]


@pytest.mark.covers("D83", "D86")
async def test_the_order_of_requests_does_not_change_what_a_window_offers(
    shared_admin: AsyncClient,
) -> None:
    """Times in one window get the free cells after them, in any order of requests."""
    times = [after(offset) for offset in (0, 0, 1, 1.5, 3.9, 3.9, 4.2, 5, 5, 0, 0, 7.9, 0.1, 2, 2)]
    taken: set[tuple[float, ...]] = set()

    for seed in range(5):
        config = await make_config(shared_admin)
        shuffled = random.Random(seed).sample(list(enumerate(times)), len(times))
        for number, at in shuffled:
            slot = await config.assign(f"event-{number}", at)
            assert instant_of(slot["scheduledTime"]) >= at
        taken.add(tuple(offset_of(slot) for slot in await config.list_all()))

    assert len(taken) == 1


@pytest.mark.covers("D83")
async def test_a_window_with_overflow_from_another_still_serves_a_later_time(
    shared_admin: AsyncClient,
) -> None:
    """The document's example: A at :01 overflows into the window in which B requests :05."""
    config = await make_config(shared_admin)
    await config.fill(5, after(1), name="a")  # At 1, 2, 3, 4, 5.

    slots = [await config.assign(f"b-{number}", after(5)) for number in range(3)]

    assert [offset_of(slot) for slot in slots] == [6, 7, 8]


@pytest.mark.covers("D86")
async def test_a_late_time_does_not_mark_the_window_full_for_an_early_one(
    shared_admin: AsyncClient,
) -> None:
    config = await make_config(shared_admin, 100)
    await config.fill(3, after(3.9), name="late")  # Two at the window's end, one in the next.

    slots = await config.fill(98, name="early")

    assert [offset_of(slot) for slot in slots] == [number / 25 for number in range(98)]


@pytest.mark.covers("D84")
async def test_two_configs_do_not_share_capacity(shared_admin: AsyncClient) -> None:
    """Neither with equal windows nor with windows of different sizes."""
    configs = [
        await make_config(shared_admin, 2),
        await make_config(shared_admin, 2),
        await make_config(shared_admin, 2, "PT2S"),
    ]

    given = [[offset_of(slot) for slot in await config.fill(4)] for config in configs]

    assert given == [[0, 2, 4, 6], [0, 2, 4, 6], [0, 1, 2, 3]]


# ----------------------------------------------------------------------------- past and future


@pytest.mark.covers("D89")
@pytest.mark.parametrize("asked", ["1970-01-01T00:00:00Z", "2025-06-01T12:00:00Z"])
async def test_a_time_in_the_past_means_now(shared_admin: AsyncClient, asked: str) -> None:
    config = await make_config(shared_admin, 100)
    before = datetime.now(UTC)

    request = config.request("event") | {"requestedTime": asked}
    slot = body_of(await shared_admin.post(SLOTS, json=request))

    scheduled_at = instant_of(slot["scheduledTime"])
    made_at = instant_of((await config.show("event"))["createdAt"])
    assert before <= made_at <= scheduled_at < made_at + 40 * MILLISECOND
    assert slot["delayMs"] == (scheduled_at - instant_of(asked)) // MILLISECOND
    again = body_of(await shared_admin.post(SLOTS, json=request))
    assert again == slot | request | {"outcome": "existing"}


@pytest.mark.covers("D89")
async def test_the_horizon_is_the_configs(shared_admin: AsyncClient) -> None:
    near = await make_config(shared_admin, horizon="P1D")
    far = await make_config(shared_admin, horizon="P3660D")
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    tomorrow, in_ten_years = hour + 20 * HOUR, NOON + 3650 * DAY

    refused = await shared_admin.post(SLOTS, json=near.request("event", NOON))
    slots = [await near.assign("event", tomorrow), await far.assign("event", in_ten_years)]

    assert problem(refused, 400, "invalid-input")["field"] == "requestedTime"
    assert [instant_of(slot["scheduledTime"]) for slot in slots] == [tomorrow, in_ten_years]


# --------------------------------------------------------------------------------- never full


@pytest.mark.covers("D54", "D55", "D80", "D90")
async def test_after_a_burst_any_time_is_answered_in_one_call(shared_admin: AsyncClient) -> None:
    """The document's search ends after 300 windows; here 2,000 are full."""
    config = await make_config(shared_admin, 1, "PT1S")
    burst = await config.fill(2_000)

    slots = {
        "the same time": await config.assign("same"),
        "within": await config.assign("within", after(1_000)),
        "near the end": await config.assign("near", after(1_999.5)),
        "behind": await config.assign("behind", after(5_000)),
        "before": await config.assign("before", after(-1)),
    }

    assert [offset_of(slot) for slot in burst] == list(range(2_000))
    assert {when: offset_of(slot) for when, slot in slots.items()} == {
        "the same time": 2_000,
        "within": 2_001,
        "near the end": 2_002,
        "behind": 5_000,
        "before": -1,
    }


@pytest.mark.covers("D45", "D72", "D74", "D75", "D76", "D96")
async def test_nothing_is_provisioned_and_a_burst_is_one_row(
    admin: AsyncClient, penstock: Penstock
) -> None:
    """Windows are computed, so that no call has to create them or wait for another to do so."""
    config = await make_config(admin, 1, "PT1S")

    for number in range(3):
        await config.fill(1_000, name=f"burst-{number}")

    rows = await penstock.pool.fetchrow(
        """
        SELECT (SELECT count(*) FROM penstock.slot) AS slots,
            (SELECT count(*) FROM penstock.slot_run) AS runs,
            (SELECT count(*) FROM penstock.slot_stretch JOIN penstock.slot_pool USING (pool_id)
                WHERE name = $1) AS stretches,
            (SELECT count(*) FROM penstock.rl_wndw_frontier_trk) AS frontiers
        """,
        config.name,
    )
    assert rows is not None
    assert dict(rows.items()) == {"slots": 3_000, "runs": 1, "stretches": 1, "frontiers": 1}


@pytest.mark.covers("D59", "D79")
@pytest.mark.parametrize("per_window", [1, 7, 100, 333])
async def test_no_interval_of_a_windows_length_holds_more_than_its_capacity(
    shared_admin: AsyncClient, per_window: int
) -> None:
    """The rate is exact in every interval; in the document it is right on average."""
    config = await make_config(shared_admin, per_window)

    slots = await config.fill(1_000, after(1.2345))

    times = [instant_of(slot["scheduledTime"]) for slot in slots]
    assert all(earlier < later for earlier, later in pairwise(times))
    assert all(
        later - earlier >= 4 * SECOND
        for earlier, later in zip(times, times[per_window:], strict=False)
    )


@pytest.mark.covers("D5", "D42", "D93")
async def test_an_exhausted_config_is_unavailable_with_retry_after(
    shared_admin: AsyncClient,
) -> None:
    """Only a calendar that ends can be exhausted. Refused requests are not booked."""
    ends = {"from": text_of(NOON + HOUR), "until": "2200-01-01T00:00:00Z"}
    config = await make_config(
        shared_admin, 1, "PT1H", calendar={"timeZone": "UTC", "blackouts": [ends]}
    )
    await config.assign("last")

    response = await shared_admin.post(SLOTS, json=config.request("too many"))

    assert problem(response, 503, "pool-exhausted")["pool"] == config.name
    assert int(response.headers["retry-after"]) > 0
    assert len(await config.list_all()) == 1


# --------------------------------------------------------------------------------- concurrency


@pytest.mark.covers("D77")
async def test_two_nodes_serve_one_config_without_gaps_or_duplicates(
    admin: AsyncClient, other_admin: AsyncClient
) -> None:
    config = await make_config(admin, 100)

    responses = await asyncio.gather(
        *(
            client.post(SLOTS, json=config.request(f"event-{number}"))
            for number, client in enumerate([admin, other_admin] * 75)
        )
    )

    given = sorted(offset_of(body_of(response)) for response in responses)
    assert given == [number / 25 for number in range(150)]


@pytest.mark.covers("D30", "D48")
async def test_a_slot_and_its_cell_are_booked_in_one_transaction(penstock: Penstock) -> None:
    async with penstock.pool.acquire() as db:
        await assign(db, "default", SlotRequest("first", NOON))
        transaction = db.transaction()
        await transaction.start()
        lost = await assign(db, "default", SlotRequest("second", NOON))
        within = await db.fetchval("SELECT slot_ct FROM penstock.rl_wndw_ct")

        await transaction.rollback()

        assert within == 2
        assert await db.fetchval("SELECT slot_ct FROM penstock.rl_wndw_ct") == 1
        again = await assign(db, "default", SlotRequest("third", NOON))
        assert again.scheduled_at == lost.scheduled_at == NOON + 40 * MILLISECOND


@pytest.mark.covers("D78")
async def test_unknown_config_names_are_not_kept_in_memory(
    admin: AsyncClient, penstock: Penstock
) -> None:
    """Memory per config must not grow with names that callers send."""
    (batcher,) = (
        each.handle.__self__.batcher  # pyright: ignore[reportFunctionMemberAccess]
        for each in penstock.endpoints
        if (each.method, each.path) == ("POST", SLOTS)
    )

    for number in range(50):
        request = {"eventId": "event", "configName": f"x{number}", "requestedTime": text_of(NOON)}
        problem(await admin.post(SLOTS, json=request), 404, "unknown-pool")
        known = {"eventId": f"event-{number}", "requestedTime": text_of(NOON + number * HOUR)}
        body_of(await admin.post(SLOTS, json=known))

    assert len(batcher._queues) <= 1
