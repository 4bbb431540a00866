"""Many requests in one body: each has its own result, in the order of the requests."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from httpx import AsyncClient

from penstock import Penstock
from penstock.domains.slots.batch import LINES as LINE_LIMITS
from tests.api.scene import Callers, problem
from tests.domains.slots.scene import (
    DAY,
    LINES,
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

BATCH = f"{SLOTS}/batch"


async def send(client: AsyncClient, requests: list[Any], *, is_array: bool) -> list[Json]:
    """Send requests and return their results."""
    parts = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in requests]
    if is_array:
        content, headers = b"[" + b",".join(parts) + b"]", {"Content-Type": "application/json"}
    else:
        content, headers = b"\n".join(parts), LINES
    response = await client.post(BATCH, content=content, headers=headers)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == headers["Content-Type"]
    if is_array:
        return response.json()
    return [json.loads(line) for line in response.text.splitlines()]


each_form = pytest.mark.parametrize("is_array", [True, False], ids=["array", "lines"])


@pytest.mark.covers("D91")
@each_form
async def test_a_batch_gets_the_same_slots_as_single_requests(
    shared_admin: AsyncClient, is_array: bool
) -> None:
    config, alone = await make_config(shared_admin), await make_config(shared_admin)
    times = [after(offset) for offset in (0, 0, 0, 0, 0, 1.5, 7, 7)]

    results = await send(
        shared_admin,
        [config.request(f"event-{number}", at) for number, at in enumerate(times)],
        is_array=is_array,
    )
    expected = [await alone.assign(f"event-{number}", at) for number, at in enumerate(times)]

    assert results == [
        {"index": index, "outcome": "assigned"} | each | {"eventId": config.event(f"event-{index}")}
        for index, each in enumerate(expected)
    ]


@each_form
async def test_each_request_has_its_own_result_at_its_own_index(
    shared_admin: AsyncClient, is_array: bool
) -> None:
    """An invalid request must neither fail the others nor shift their results."""
    config, elsewhere = await make_config(shared_admin), await make_config(shared_admin)
    known = await config.assign("known", after(30))
    unknown = {"configName": "nobody"}

    results = await send(
        shared_admin,
        [
            config.request("one"),
            b"17",
            config.request("known", after(30)),
            config.request("known", after(31)),
            config.request("stray") | unknown,
            elsewhere.request("there"),
            config.request("far", NOON + 400 * DAY),
            config.request("x" * 60),
            config.request("naive") | {"requestedTime": "2030-01-01T00:00:00"},
            config.request("coloured") | {"colour": "red"},
            config.request("item") | {"eventId": "item:5"},
            config.request("nul") | {"configName": "a\x00b"},
            config.request("old") | {"requestedTime": "0001-01-01T00:00:00+10:00"},
            config.request("two"),
        ],
        is_array=is_array,
    )

    assert [each["index"] for each in results] == list(range(14))
    assert [each["outcome"] for each in results] == [
        "assigned",
        "invalid",
        "existing",
        "existing",
        "unknown_config",
        "assigned",
        "beyond_horizon",
        *["invalid"] * 6,
        "assigned",
    ]
    assert [offset_of(results[index]) for index in (0, 5, 13)] == [0, 0, 1]
    booked_before = {"configName": config.name, "requestedTime": text_of(after(30))}
    assert results[2] == known | {"index": 2, "outcome": "existing"} | booked_before
    assert results[3] == results[2] | {"index": 3}
    assert results[4]["eventId"] == config.event("stray")
    assert "nobody" in results[4]["detail"]
    fields = ["eventId", "requestedTime", "colour", "eventId", "configName", "requestedTime"]
    for result, field in zip(results[7:13], fields, strict=True):
        assert field in result["detail"]
        assert "scheduledTime" not in result
    assert len(await config.list_all()) == 3


@each_form
async def test_an_event_that_occurs_twice_in_a_batch_gets_one_slot(
    shared_admin: AsyncClient, is_array: bool
) -> None:
    config = await make_config(shared_admin)
    requests = [config.request("twin"), config.request("twin"), config.request("twin", after(9))]

    results = await send(shared_admin, requests, is_array=is_array)

    assert [each["outcome"] for each in results] == ["assigned", "existing", "existing"]
    assert len({each["scheduledTime"] for each in results}) == 1
    assert len(await config.list_all()) == 1


@each_form
async def test_in_a_strict_config_another_time_in_a_batch_is_a_conflict(
    shared_admin: AsyncClient, is_array: bool
) -> None:
    config = await make_config(shared_admin, strict=True)
    requests = [config.request("twin"), config.request("twin"), config.request("twin", after(9))]

    results = await send(shared_admin, requests, is_array=is_array)

    assert [each["outcome"] for each in results] == ["assigned", "existing", "conflict"]
    assert results[2].items() >= (requests[0] | {"scheduledTime": text_of(NOON)}).items()
    assert "for another time or pool" in results[2]["detail"]


async def test_earlier_times_are_served_first_and_equal_ones_in_their_order(
    shared_admin: AsyncClient,
) -> None:
    config = await make_config(shared_admin, 1)
    times = {"c": 0.5, "a": 0, "d": 0.5, "b": 0}

    results = await config.assign_all(
        [config.request(name, after(at)) for name, at in times.items()]
    )

    given = {name: offset_of(result) for name, result in zip(times, results, strict=True)}
    assert given == {"a": 0, "b": 4, "c": 8, "d": 12}


async def test_a_batch_sent_again_gets_the_same_slots(shared_admin: AsyncClient) -> None:
    """A caller that lost the answer sends the whole batch again."""
    config = await make_config(shared_admin)
    requests = [config.request(f"event-{number}") for number in range(10)]

    first = await send(shared_admin, requests, is_array=False)
    again = await send(shared_admin, requests, is_array=True)

    assert again == [
        each | request | {"outcome": "existing"}
        for each, request in zip(first, requests, strict=True)
    ]


async def test_ten_thousand_lines_may_arrive_in_any_pieces(shared_admin: AsyncClient) -> None:
    """Pieces may end within a line or a character; empty lines are ignored."""
    config = await make_config(shared_admin, 100)
    lines = [
        json.dumps(config.request(f"é-{number}"), ensure_ascii=False) for number in range(10_000)
    ]
    content = "\r\n\n".join(lines).encode() + b"\n"

    async def pieces() -> AsyncGenerator[bytes]:
        for start in range(0, len(content), 65_521):
            yield content[start : start + 65_521]

    response = await shared_admin.post(BATCH, content=pieces(), headers=LINES)

    assert response.status_code == 200
    results = [json.loads(line) for line in response.text.splitlines()]
    assert [each["index"] for each in results] == list(range(10_000))
    assert [each["eventId"] for each in results] == [config.event(f"é-{n}") for n in range(10_000)]
    assert instant_of(results[-1]["scheduledTime"]) == after(9_999 / 25)


@pytest.mark.parametrize(
    ("content", "headers"),
    [(b"[]", {"Content-Type": "application/json"}), (b"", LINES), (b"\n \n\r\n", LINES)],
)
async def test_an_empty_batch_has_no_results(
    shared_admin: AsyncClient, *, content: bytes, headers: dict[str, str]
) -> None:
    response = await shared_admin.post(BATCH, content=content, headers=headers)

    assert response.status_code == 200
    assert response.text in {"[]", ""}


@pytest.mark.parametrize("media_type", ["text/plain", "application/merge+json", "", "text/csv"])
async def test_a_batch_of_another_media_type_is_refused(
    shared_callers: Callers, media_type: str
) -> None:
    config = Config(client=shared_callers.admin, name="default")
    content = json.dumps([config.request("event")])

    response = await shared_callers.producer.post(
        BATCH, content=content, headers={"Content-Type": media_type}
    )

    refusal = problem(response, 415, "unsupported-media-type")
    assert "application/json or application/x-ndjson" in refusal["detail"]
    assert await config.list_all() == []


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (b"", "application/json"),
        (b"{}", "application/json"),
        (b"[{}", "application/json"),
        (b"[\xff]", "application/json"),
        (b"[" * 100_000, "application/json"),
        (b"[" * 2_000 + b"]" * 2_000, "application/json"),
    ],
    ids=["empty", "object", "cut-short", "not-utf-8", "deep-and-cut-short", "deep"],
)
async def test_a_body_that_is_not_a_batch_is_refused(
    shared_admin: AsyncClient, shared_penstock: Penstock, *, content: bytes, media_type: str
) -> None:
    before = await shared_penstock.pool.fetchval("SELECT count(*) FROM penstock.slot")

    response = await shared_admin.post(BATCH, content=content, headers={"Content-Type": media_type})

    assert problem(response, 400, "invalid-input")["field"] == "body"
    assert await shared_penstock.pool.fetchval("SELECT count(*) FROM penstock.slot") == before


async def test_each_invalid_line_has_its_own_result(shared_admin: AsyncClient) -> None:
    lines = [
        b"x",
        b"\xff",
        b"[]",
        b"{}",
        b'"' + b"y" * 1_000,
        b"[" * 1_500,
        b'{"eventId": "a\\ud800"}',
        b"x" * (LINE_LIMITS.line_bytes_max + 1),
    ]

    results = await send(shared_admin, lines, is_array=False)

    assert [(each["index"], each["outcome"]) for each in results] == [
        (index, "invalid") for index in range(len(lines))
    ]


async def test_the_scope_produce_may_assign_a_batch(shared_callers: Callers) -> None:
    config = await make_config(shared_callers.admin)
    requests = [config.request("event")]

    made = await shared_callers.producer.post(BATCH, json=requests)

    assert body_of(made)[0]["scheduledTime"] == text_of(NOON)
    problem(await shared_callers.reader.post(BATCH, json=requests), 403, "forbidden")
    problem(await shared_callers.stranger.post(BATCH, json=requests), 401, "unauthenticated")
