"""An invalid request is refused with the name of the field, and nothing is booked."""

import asyncio
import json
from typing import Any

import pytest
from httpx import AsyncClient

from penstock import Penstock
from tests.api.scene import Callers, problem
from tests.domains.slots.scene import (
    CONFIG,
    DAY,
    NOON,
    SLOTS,
    Json,
    text_of,
)

JSON = {"Content-Type": "application/json"}
SLOT = {"eventId": "refused", "configName": "default", "requestedTime": text_of(NOON)}
RULE = {"configName": "refused", "maxPerWindow": 10, "windowSize": "PT4S"}
FORECAST = {"count": 1, "from": text_of(NOON)}


async def state_of(penstock: Penstock) -> list[Any]:
    """Return how many rows each table of slots has."""
    row = await penstock.pool.fetchrow(
        """
        SELECT (SELECT count(*) FROM penstock.slot),
            (SELECT count(*) FROM penstock.slot_run),
            (SELECT count(*) FROM penstock.slot_pool),
            (SELECT count(*) FROM penstock.slot_config),
            (SELECT count(*) FROM penstock.slot_stretch),
            (SELECT count(*) FROM penstock.slot_cancelled),
            (SELECT count(*) FROM penstock.slot_reflow)
        """
    )
    assert row is not None
    return list(row)


async def refused(
    client: AsyncClient, penstock: Penstock, path: str, *, body: object
) -> dict[str, Any]:
    """Send a body and return the problem; asserts that no row was written."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    before = await state_of(penstock)

    response = await client.post(path, content=content, headers=JSON)

    error = problem(response, 400, "invalid-input")
    assert error["detail"] == f"{error['field']}: {error['reason']}"
    assert await state_of(penstock) == before
    return error


def each(cases: list[tuple[str, Json, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("wrong", "field"), [case[1:] for case in cases], ids=[case[0] for case in cases]
    )


# -------------------------------------------------------------------------------------- slots

WRONG_TIMES: list[tuple[str, object]] = [
    ("empty", ""),
    ("word", "tomorrow"),
    ("number", 1_900_000_000),
    ("null", None),
    ("date-only", "2030-01-01"),
    ("without-zone", "2030-01-01T00:00:00"),
    ("february-30", "2030-02-30T00:00:00Z"),
    ("hour-24", "2030-01-01T24:00:00Z"),
    ("second-60", "2030-01-01T00:00:60Z"),
    ("offset-25", "2030-01-01T00:00:00+25:00"),
    ("year-1", "0001-01-01T00:00:00Z"),
    ("before-year-1", "0001-01-01T00:00:00+10:00"),
    ("before-1970", "1969-12-31T23:59:59Z"),
    ("year-9999", "9999-12-31T23:59:59Z"),
    ("last-microsecond", "9999-12-31T23:59:59.999999Z"),
    ("after-year-9999", "9999-12-31T23:59:59-10:00"),
    ("year-12030", "12030-01-01T00:00:00Z"),
]

WRONG_SLOTS: list[tuple[str, Json, str]] = [
    *((f"time-{name}", {"requestedTime": time}, "requestedTime") for name, time in WRONG_TIMES),
    ("time-beyond-the-horizon", {"requestedTime": text_of(NOON + 367 * DAY)}, "requestedTime"),
    ("event-empty", {"eventId": ""}, "eventId"),
    ("event-too-long", {"eventId": "x" * 51}, "eventId"),
    ("event-with-nul", {"eventId": "a\x00b"}, "eventId"),
    ("event-of-an-item", {"eventId": "item:5"}, "eventId"),
    ("event-reserved", {"eventId": "item:"}, "eventId"),
    ("event-of-wrong-type", {"eventId": 5}, "eventId"),
    ("event-null", {"eventId": None}, "eventId"),
    ("config-empty", {"configName": ""}, "configName"),
    ("config-too-long", {"configName": "x" * 129}, "configName"),
    ("config-with-nul", {"configName": "default\x00"}, "configName"),
    ("config-of-wrong-type", {"configName": ["default"]}, "configName"),
    ("unknown-field", {"priority": 1}, "priority"),
    ("field-in-another-spelling", {"event_id": "x"}, "event_id"),
]


@pytest.mark.covers("D89", "D95")
@each(WRONG_SLOTS)
async def test_a_wrong_request_for_a_slot_is_refused_with_its_field(
    shared_admin: AsyncClient, shared_penstock: Penstock, *, wrong: Json, field: str
) -> None:
    error = await refused(shared_admin, shared_penstock, SLOTS, body=SLOT | wrong)

    assert error["field"] == field


@pytest.mark.parametrize("missing", ["eventId", "requestedTime"])
async def test_a_missing_field_is_named(
    shared_admin: AsyncClient, shared_penstock: Penstock, missing: str
) -> None:
    body = {name: value for name, value in SLOT.items() if name != missing}

    error = await refused(shared_admin, shared_penstock, SLOTS, body=body)

    assert (error["field"], error["reason"]) == (missing, "is missing")


@pytest.mark.parametrize(
    "path", [SLOTS, CONFIG, f"{SLOTS}/forecast", f"{SLOTS}/reflow"], ids=lambda path: path[-10:]
)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"17",
        b"eventId=x",
        b"\xff",
        b"[" * 60_000,
        b'{"configName": "\\ud800"}',
    ],
    ids=["empty", "cut", "null", "array", "number", "form", "not-utf-8", "deep", "half-a-pair"],
)
async def test_a_body_that_is_not_a_request_is_refused(
    shared_admin: AsyncClient, shared_penstock: Penstock, *, path: str, body: bytes
) -> None:
    error = await refused(shared_admin, shared_penstock, path, body=body)

    assert error["field"] == "body"


async def test_a_body_of_another_media_type_is_refused(shared_admin: AsyncClient) -> None:
    response = await shared_admin.post(SLOTS, data=SLOT)

    problem(response, 415, "unsupported-media-type")


async def test_an_invalid_request_does_not_fail_the_ones_batched_with_it(
    admin: AsyncClient, penstock: Penstock
) -> None:
    """Concurrent requests share one statement, which one caller must not make fail."""
    bad = [SLOT | wrong for _, wrong, _ in WRONG_SLOTS] + [SLOT | {"configName": "nobody"}]
    good = [SLOT | {"eventId": f"good-{number}"} for number in range(len(bad))]

    answers = await asyncio.gather(
        *(admin.post(SLOTS, json=body) for pair in zip(good, bad, strict=True) for body in pair)
    )

    assert {answer.status_code for answer in answers[0::2]} == {200}
    assert [answer.status_code for answer in answers[1::2]] == [400] * len(WRONG_SLOTS) + [404]
    assert await penstock.pool.fetchval("SELECT count(*) FROM penstock.slot") == len(good)


# ------------------------------------------------------------------------------------- configs

WRONG_RULES: list[tuple[str, Json, str]] = [
    ("capacity-zero", {"maxPerWindow": 0}, "maxPerWindow"),
    ("capacity-negative", {"maxPerWindow": -1}, "maxPerWindow"),
    ("capacity-over-a-million", {"maxPerWindow": 1_000_001}, "maxPerWindow"),
    ("capacity-huge", {"maxPerWindow": 10**30}, "maxPerWindow"),
    ("capacity-a-fraction", {"maxPerWindow": 1.5}, "maxPerWindow"),
    ("capacity-as-text", {"maxPerWindow": "5"}, "maxPerWindow"),
    ("capacity-true", {"maxPerWindow": True}, "maxPerWindow"),
    ("capacity-over-the-microseconds", {"maxPerWindow": 1001, "windowSize": "PT0.001S"},
     "maxPerWindow"),
    ("window-zero", {"windowSize": "PT0S"}, "windowSize"),
    ("window-negative", {"windowSize": "-PT4S"}, "windowSize"),
    ("window-below-a-millisecond", {"windowSize": "PT0.000999S"}, "windowSize"),
    ("window-over-a-day", {"windowSize": "P1DT0.000001S"}, "windowSize"),
    ("window-huge", {"windowSize": "PT99999999999999999999S"}, "windowSize"),
    ("window-of-months", {"windowSize": "P1M"}, "windowSize"),
    ("window-of-years", {"windowSize": "P1Y"}, "windowSize"),
    ("window-without-p", {"windowSize": "4S"}, "windowSize"),
    ("window-a-word", {"windowSize": "often"}, "windowSize"),
    ("window-empty", {"windowSize": ""}, "windowSize"),
    ("window-a-number", {"windowSize": 4}, "windowSize"),
    ("window-null", {"windowSize": None}, "windowSize"),
    ("name-empty", {"configName": ""}, "configName"),
    ("name-too-long", {"configName": "x" * 129}, "configName"),
    ("name-with-nul", {"configName": "a\x00"}, "configName"),
    ("name-with-newline", {"configName": "a\nb"}, "configName"),
    ("spacing-unknown", {"spacing": "odd"}, "spacing"),
    ("spacing-null", {"spacing": None}, "spacing"),
    ("horizon-zero", {"horizon": "PT0S"}, "horizon"),
    ("horizon-below-a-day", {"horizon": "PT23H"}, "horizon"),
    ("horizon-over-ten-years", {"horizon": "P3661D"}, "horizon"),
    ("horizon-negative", {"horizon": "-P2D"}, "horizon"),
    ("strict-a-text", {"strict": "yes"}, "strict"),
    ("strict-null", {"strict": None}, "strict"),
    ("unknown-field", {"maxPerSecond": 5}, "maxPerSecond"),
]  # fmt: skip


@pytest.mark.covers("D89", "D95")
@each(WRONG_RULES)
async def test_a_wrong_rule_is_refused_with_its_field(
    shared_admin: AsyncClient, shared_penstock: Penstock, *, wrong: Json, field: str
) -> None:
    error = await refused(shared_admin, shared_penstock, CONFIG, body=RULE | wrong)

    assert error["field"] == field


@pytest.mark.parametrize("missing", ["configName", "maxPerWindow", "windowSize"])
async def test_a_rule_that_lacks_a_field_is_refused(
    shared_admin: AsyncClient, shared_penstock: Penstock, missing: str
) -> None:
    body = {name: value for name, value in RULE.items() if name != missing}

    error = await refused(shared_admin, shared_penstock, CONFIG, body=body)

    assert (error["field"], error["reason"]) == (missing, "is missing")


async def test_an_invalid_change_leaves_the_previous_version_active(
    shared_admin: AsyncClient, shared_penstock: Penstock
) -> None:
    before = (await shared_admin.get(CONFIG)).json()

    await refused(
        shared_admin,
        shared_penstock,
        CONFIG,
        body=RULE | {"configName": "default", "calendar": {"timeZone": "Mars"}},
    )

    assert (await shared_admin.get(CONFIG)).json() == before


def opens(**change: Any) -> Json:
    return {"hours": [{"days": ["mon"], "opens": "09:00", "closes": "17:00"} | change]}


def blackout(**change: Any) -> Json:
    return {"blackouts": [{"from": text_of(NOON), "until": text_of(NOON + DAY)} | change]}


WRONG_CALENDARS: list[tuple[str, Json, str]] = [
    ("zone-unknown", {"timeZone": "Europe/Atlantis"}, "calendar.timeZone"),
    ("zone-of-the-machine", {"timeZone": "localtime"}, "calendar.timeZone"),
    ("zone-empty", {"timeZone": ""}, "calendar.timeZone"),
    ("zone-with-nul", {"timeZone": "UTC\x00"}, "calendar.timeZone"),
    ("zone-a-path", {"timeZone": "../../etc/passwd"}, "calendar.timeZone"),
    ("zone-null", {"timeZone": None}, "calendar.timeZone"),
    ("no-days", opens(days=[]), "calendar.hours[0].days"),
    ("day-unknown", opens(days=["mon", "someday"]), "calendar.hours[0].days[1]"),
    ("opens-h:mm", opens(opens="9:00"), "calendar.hours[0].opens"),
    ("opens-24:00", opens(opens="24:00"), "calendar.hours[0].opens"),
    ("closes-24:01", opens(closes="24:01"), "calendar.hours[0].closes"),
    ("closes-a-number", opens(closes=17), "calendar.hours[0].closes"),
    ("hours-unknown-field", opens(lunch="12:00"), "calendar.hours[0].lunch"),
    ("too-many-hours", {"hours": opens()["hours"] * 51}, "calendar.hours"),
    ("holidays-unknown", {"holidays": ["TARGET2", "XX"]}, "calendar.holidays[1]"),
    ("holidays-no-list", {"holidays": "TARGET2"}, "calendar.holidays"),
    ("too-many-holidays", {"holidays": ["TARGET2"] * 21}, "calendar.holidays"),
    ("closed-day-that-is-none", {"closedDays": ["2030-02-30"]}, "calendar.closedDays[0]"),
    ("too-many-closed-days", {"closedDays": ["2030-01-01"] * 1_001}, "calendar.closedDays"),
    ("blackout-backwards", blackout(until=text_of(NOON)), "calendar.blackouts[0].until"),
    ("blackout-endless", {"blackouts": [{"from": text_of(NOON)}]}, "calendar.blackouts[0].until"),
    ("blackout-naive", blackout(**{"from": "2030-01-01T00:00:00"}), "calendar.blackouts[0].from"),
    ("blackout-of-year-1", blackout(**{"from": "0001-01-01T00:00:00Z"}),
     "calendar.blackouts[0].from"),
    ("blackout-to-9999", blackout(until="9999-12-31T23:59:59-10:00"),
     "calendar.blackouts[0].until"),
    ("cut-off-no-time", {"cutOff": "noon"}, "calendar.cutOff"),
    ("cut-off-25:00", {"cutOff": "25:00"}, "calendar.cutOff"),
    ("cut-off-after-closing", opens() | {"cutOff": "17:01"}, "calendar.cutOff"),
    ("policy-unknown", {"cutOffPolicy": "maybe"}, "calendar.cutOffPolicy"),
    ("unknown-field", {"lunch": "12:00"}, "calendar.lunch"),
    ("never-open", blackout(**{"from": "2020-01-01T00:00:00Z", "until": "2199-01-01T00:00:00Z"}),
     "calendar"),
]  # fmt: skip


@each(WRONG_CALENDARS)
async def test_a_wrong_calendar_is_refused_with_its_field(
    shared_admin: AsyncClient, shared_penstock: Penstock, *, wrong: Json, field: str
) -> None:
    body = RULE | {"calendar": {"timeZone": "Europe/Berlin"} | wrong}

    error = await refused(shared_admin, shared_penstock, CONFIG, body=body)

    assert error["field"] == field


@pytest.mark.parametrize(("calendar", "field"), [({}, "calendar.timeZone"), ("UTC", "calendar")])
async def test_a_value_that_is_not_a_calendar_is_refused(
    shared_admin: AsyncClient, shared_penstock: Penstock, *, calendar: object, field: str
) -> None:
    error = await refused(shared_admin, shared_penstock, CONFIG, body=RULE | {"calendar": calendar})

    assert error["field"] == field


async def test_a_calendar_that_leaves_no_place_for_a_slot_is_refused(
    shared_admin: AsyncClient, shared_penstock: Penstock
) -> None:
    """A slot a day, at midnight, and open only at noon."""
    noon = {"days": ["mon"], "opens": "12:00", "closes": "13:00"}
    body = RULE | {
        "maxPerWindow": 1,
        "windowSize": "P1D",
        "calendar": {"timeZone": "UTC", "hours": [noon]},
    }

    error = await refused(shared_admin, shared_penstock, CONFIG, body=body)

    assert error["field"] == "calendar"


# --------------------------------------------------------------------------- everything else

WRONG_FORECASTS: list[tuple[str, Json, str]] = [
    *((f"from-{name}", {"from": time}, "from") for name, time in WRONG_TIMES),
    ("count-zero", {"count": 0}, "count"),
    ("count-negative", {"count": -1}, "count"),
    ("count-huge", {"count": 10**30}, "count"),
    ("count-over-a-billion", {"count": 1_000_000_001}, "count"),
    ("count-a-fraction", {"count": 1.5}, "count"),
    ("config-empty", {"configName": ""}, "configName"),
    ("unknown-field", {"until": text_of(NOON)}, "until"),
]


@each(WRONG_FORECASTS)
async def test_a_wrong_forecast_is_refused_with_its_field(
    shared_admin: AsyncClient, shared_penstock: Penstock, *, wrong: Json, field: str
) -> None:
    error = await refused(shared_admin, shared_penstock, f"{SLOTS}/forecast", body=FORECAST | wrong)

    assert error["field"] == field


WRONG_REFLOWS: list[tuple[str, Json, str]] = [
    *(
        (f"freeze-{name}", {"freezeUntil": time}, "freezeUntil")
        for name, time in WRONG_TIMES
        if time is not None
    ),
    ("dry-run-a-word", {"dryRun": "no"}, "dryRun"),
    ("dry-run-null", {"dryRun": None}, "dryRun"),
    ("config-with-nul", {"configName": "\x00"}, "configName"),
    ("unknown-field", {"dry_run": True}, "dry_run"),
]


@each(WRONG_REFLOWS)
async def test_a_wrong_reflow_is_refused_with_its_field(
    shared_admin: AsyncClient, shared_penstock: Penstock, *, wrong: Json, field: str
) -> None:
    error = await refused(shared_admin, shared_penstock, f"{SLOTS}/reflow", body=wrong)

    assert error["field"] == field


@pytest.mark.parametrize(
    ("path", "query", "field"),
    [
        *((SLOTS, {"from": time}, "from") for _, time in WRONG_TIMES if isinstance(time, str)),
        *((SLOTS, {"until": time}, "until") for _, time in WRONG_TIMES if isinstance(time, str)),
        (SLOTS, {"createdFrom": "0001-01-01T00:00:00Z"}, "createdFrom"),
        (SLOTS, {"createdFrom": "yesterday"}, "createdFrom"),
        (SLOTS, {"limit": "0"}, "limit"),
        (SLOTS, {"limit": "1001"}, "limit"),
        (SLOTS, {"limit": "many"}, "limit"),
        (SLOTS, {"after": ""}, "after"),
        (SLOTS, {"after": "17"}, "after"),
        (SLOTS, {"after": text_of(NOON)}, "after"),
        (SLOTS, {"after": f"{text_of(NOON)}_"}, "after"),
        (SLOTS, {"after": f"{text_of(NOON)}_-1"}, "after"),
        (SLOTS, {"after": f"{text_of(NOON)}_{10**12}"}, "after"),
        (SLOTS, {"after": "2030-01-01T00:00:00_5"}, "after"),
        (SLOTS, {"after": "0001-01-01T00:00:00+10:00_5"}, "after"),
        (SLOTS, {"after": "9999-12-31T23:59:59-10:00_5"}, "after"),
        (SLOTS, {"after": "x" * 65}, "after"),
        (SLOTS, {"configName": ""}, "configName"),
        (SLOTS, {"configName": "\x00"}, "configName"),
        (SLOTS, {"colour": "red"}, "colour"),
        (f"{SLOTS}/moves", {"after": "x"}, "after"),
        (f"{SLOTS}/moves", {"after": "-1"}, "after"),
        (f"{SLOTS}/moves", {"after": "9" * 19}, "after"),
        (f"{SLOTS}/moves", {"reflowId": "0"}, "reflowId"),
        (f"{SLOTS}/moves", {"reflowId": "9223372036854775808"}, "reflowId"),
        (f"{SLOTS}/heatmap", {"until": text_of(NOON)}, "from"),
        (f"{SLOTS}/heatmap", {"from": text_of(NOON)}, "until"),
        (f"{SLOTS}/heatmap", {"from": text_of(NOON), "until": text_of(NOON)}, "until"),
        (f"{SLOTS}/heatmap", {"from": "0001-01-01T00:00:00Z", "until": text_of(NOON)}, "from"),
        (f"{SLOTS}/heatmap", {"from": text_of(NOON), "until": "9999-12-31T23:59:59Z"}, "until"),
        (f"{SLOTS}/heatmap",
         {"from": text_of(NOON), "until": text_of(NOON + DAY), "buckets": "0"}, "buckets"),
        (f"{SLOTS}/heatmap",
         {"from": text_of(NOON), "until": text_of(NOON + DAY), "buckets": "1001"}, "buckets"),
        (f"{SLOTS}/{'x' * 51}", {}, "eventId"),
        (f"{SLOTS}/%00", {}, "eventId"),
        (f"{SLOTS}/event", {"eventId": "other"}, "eventId"),
        (CONFIG, {"name": ""}, "name"),
        (CONFIG, {"name": "x" * 129}, "name"),
        (CONFIG, {"configName": "default"}, "configName"),
        (f"{CONFIG}/versions", {"name": "\x00"}, "name"),
    ],
)  # fmt: skip
async def test_a_wrong_parameter_is_named(
    shared_admin: AsyncClient, *, path: str, query: dict[str, str], field: str
) -> None:
    response = await shared_admin.get(path, params=query or None)

    assert problem(response, 400, "invalid-input")["field"] == field


async def test_the_slot_of_an_item_cannot_be_cancelled_directly(
    shared_admin: AsyncClient,
) -> None:
    response = await shared_admin.delete(f"{SLOTS}/item:5")

    assert problem(response, 400, "invalid-input")["field"] == "eventId"


# -------------------------------------------------------------------------------------- scopes

ADMIN_ONLY: list[tuple[str, str, Json | None]] = [
    ("GET", CONFIG, None),
    ("POST", CONFIG, RULE),
    ("GET", f"{CONFIG}/versions", None),
    ("POST", "/admin/rate-limit/cache/flush", None),
    ("POST", f"{SLOTS}/reflow", {"dryRun": False}),
]


@pytest.mark.covers("D91")
@pytest.mark.parametrize(("method", "path", "body"), ADMIN_ONLY)
async def test_admin_paths_need_the_admin_scope(
    shared_callers: Callers,
    shared_penstock: Penstock,
    *,
    method: str,
    path: str,
    body: Json | None,
) -> None:
    before = await state_of(shared_penstock)

    weak = [
        await client.request(method, path, json=body)
        for client in (shared_callers.producer, shared_callers.reader)
    ]
    without = await shared_callers.stranger.request(method, path, json=body)

    for response in weak:
        assert problem(response, 403, "forbidden")["scope"] == "admin"
    problem(without, 401, "unauthenticated")
    assert await state_of(shared_penstock) == before


async def test_the_scope_produce_cannot_read_and_the_scope_read_cannot_produce(
    shared_callers: Callers, shared_penstock: Penstock
) -> None:
    before = await state_of(shared_penstock)

    assigned = await shared_callers.reader.post(SLOTS, json=SLOT)
    cancelled = await shared_callers.reader.delete(f"{SLOTS}/refused")
    listed = await shared_callers.producer.get(SLOTS)

    assert problem(assigned, 403, "forbidden")["scope"] == "produce"
    assert problem(cancelled, 403, "forbidden")["scope"] == "produce"
    assert problem(listed, 403, "forbidden")["scope"] == "read"
    assert await state_of(shared_penstock) == before
