"""Whatever is wrong with a request is reported with the field's name, and nothing is written."""

import gzip
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from httpx import AsyncClient

from penstock import Penstock
from tests.api.scene import LANES, accept, count_items, problem

JSON = {"Content-Type": "application/json"}


async def refused(
    admin: AsyncClient, penstock: Penstock, body: object, *, path: str = "/items"
) -> dict[str, Any]:
    """Send a body, bytes as they are, and return the problem; makes sure that nothing is left."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    response = await admin.post(path, content=content, headers=JSON)

    told = problem(response, 400, "invalid-input")
    assert told["detail"] == f"{told['field']}: {told['reason']}"
    assert (await count_items(penstock)).accepted == 0, "nothing may be accepted in this database"
    return told


WRONG_FIELDS: list[tuple[str, dict[str, Any], str]] = [
    ("lane-of-wrong-type", {"lane": 5}, "lane"),
    ("unknown-field", {"colour": "red"}, "colour"),
    ("key-of-wrong-type", {"key": 5}, "key"),
    ("key-empty", {"key": ""}, "key"),
    ("key-too-long", {"key": "k" * 256}, "key"),
    ("key-with-nul", {"key": "a\x00b"}, "key"),
    ("order-key-too-long", {"order_key": "k" * 256}, "order_key"),
    ("order-key-with-nul", {"order_key": "\x00"}, "order_key"),
    ("lane-with-nul", {"lane": "work\x00"}, "lane"),
    ("due-in-year-12026", {"due_at": "12026-01-01T00:00:00Z"}, "due_at"),
    ("due-in-year-9999", {"due_at": "9999-12-31T23:59:59-10:00"}, "due_at"),
    ("due-in-year-1", {"due_at": "0001-01-01T00:00:00+10:00"}, "due_at"),
    ("due-on-february-30", {"due_at": "2030-02-30T00:00:00Z"}, "due_at"),
    ("due-without-zone", {"due_at": "2030-01-01T00:00:00"}, "due_at"),
    ("due-as-number", {"due_at": 1_900_000_000}, "due_at"),
    ("deadline-before-due", {"due_at": "2030-01-02T00:00:00Z", "not_after": "2030-01-01T00:00:00Z"},
     "not_after"),
    ("deadline-in-the-past", {"not_after": "2001-01-01T00:00:00Z"}, "not_after"),
    ("payload-with-nul", {"payload": {"a": "b\x00"}}, "payload"),
    ("payload-name-with-nul", {"payload": {"a\x00": 1}}, "payload"),
    ("payload-over-the-limit", {"payload": "x" * 300_000}, "payload"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "field"), [case[1:] for case in WRONG_FIELDS], ids=[case[0] for case in WRONG_FIELDS]
)
async def test_a_wrong_field_is_named(
    shared_admin: AsyncClient, shared_penstock: Penstock, *, wrong: dict[str, Any], field: str
) -> None:
    told = await refused(shared_admin, shared_penstock, {"lane": "work", "payload": {}} | wrong)

    assert told["field"] == field


@pytest.mark.parametrize(
    ("wrong", "field"), [case[1:] for case in WRONG_FIELDS], ids=[case[0] for case in WRONG_FIELDS]
)
async def test_a_wrong_field_in_a_batch_is_named_with_its_item_and_none_is_accepted(
    shared_admin: AsyncClient, shared_penstock: Penstock, *, wrong: dict[str, Any], field: str
) -> None:
    """All or none: a producer that repairs one item sends the whole batch again."""
    good = {"lane": "work", "payload": {}}
    other = {"lane": "payments", "payload": {"amount": "1"}}

    told = await refused(
        shared_admin, shared_penstock, [good, other, good | wrong], path="/items/batch"
    )

    # What only the database can judge, it judges for the batch as a whole.
    assert told["field"] in {f"items[2].{field}", field}


@pytest.mark.parametrize("missing", ["lane", "payload"])
async def test_a_missing_field_is_named(
    shared_admin: AsyncClient, shared_penstock: Penstock, missing: str
) -> None:
    body = {"lane": "work", "payload": {}}
    del body[missing]

    told = await refused(shared_admin, shared_penstock, body)

    assert told["field"] == missing
    assert told["reason"] == "is missing"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="cut short"),
        pytest.param(b"lane=work", id="form"),
        pytest.param(b'{"lane": "work", "payload": NaN}', id="NaN"),
        pytest.param(b'{"lane": "work", "payload": 1} 2', id="trailing"),
        pytest.param(b'{"lane": "work", "payload": "\x00"}', id="raw NUL"),
        pytest.param(b'{"lane": "w\xff", "payload": 1}', id="not UTF-8"),
        pytest.param(b"[]", id="array"),
        pytest.param(b"null", id="null"),
        pytest.param(b'{"lane": "work", "payload": ' + b"[" * 100_000, id="deep and cut short"),
        pytest.param(
            b'{"lane": "work", "payload": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", id="deep"
        ),
    ],
)
async def test_a_body_that_is_no_item_at_all_is_refused(
    shared_admin: AsyncClient, shared_penstock: Penstock, body: bytes
) -> None:
    told = await refused(shared_admin, shared_penstock, body)

    assert told["field"] == "body"


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"[" * 65 + b"]" * 65, id="65 levels"),
        pytest.param(b'{"a":' * 900 + b"1" + b"}" * 900, id="900 levels"),
        pytest.param(b'"\xff"', id="not UTF-8"),
        pytest.param(b'"\\ud800 alone"', id="half a surrogate pair"),
        pytest.param(b"1e999999", id="a number that no database holds"),
    ],
)
async def test_a_payload_that_cannot_be_stored_is_refused(
    shared_admin: AsyncClient, shared_penstock: Penstock, payload: bytes
) -> None:
    told = await refused(
        shared_admin, shared_penstock, b'{"lane": "work", "payload": ' + payload + b"}"
    )

    assert told["field"] in {"payload", "body"}


async def test_a_payload_of_64_levels_is_accepted(admin: AsyncClient) -> None:
    """The limit is where it is said to be."""
    deep: object = 1
    for _ in range(64):
        deep = [deep]

    assert await accept(admin, payload=deep)


@pytest.mark.covers("E79")
@pytest.mark.parametrize("amount", [12.5, True, None, "a lot", "NaN", [1]])
async def test_what_is_no_exact_amount_is_refused_where_money_is_meant(
    shared_admin: AsyncClient, shared_penstock: Penstock, amount: object
) -> None:
    """A float has no cents."""
    told = await refused(
        shared_admin, shared_penstock, {"lane": "payments", "payload": {"amount": amount}}
    )

    assert told["field"] == "payload.amount"


async def test_the_error_for_an_unknown_lane_lists_the_known_ones(
    shared_admin: AsyncClient, shared_penstock: Penstock
) -> None:
    response = await shared_admin.post("/items", json={"lane": "wrok", "payload": 1})

    told = problem(response, 404, "unknown-lane")
    assert told["lane"] == "wrok"
    assert told["known"] == LANES
    assert (await count_items(shared_penstock)).accepted == 0


async def test_an_unknown_lane_in_a_batch_leaves_nothing(
    shared_admin: AsyncClient, shared_penstock: Penstock
) -> None:
    batch = [{"lane": "work", "payload": 1}, {"lane": "wrok", "payload": 1}]

    response = await shared_admin.post("/items/batch", json=batch)

    assert problem(response, 404, "unknown-lane")["known"] == LANES
    assert (await count_items(shared_penstock)).accepted == 0


async def test_a_conflict_in_a_batch_leaves_nothing(admin: AsyncClient, penstock: Penstock) -> None:
    await accept(admin, key="k", payload=1)
    batch = [{"lane": "work", "payload": 1}, {"lane": "work", "payload": 2, "key": "k"}]

    response = await admin.post("/items/batch", json=batch)

    assert problem(response, 409, "key-conflict")["key"] == "k"
    assert (await count_items(penstock)).accepted == 1


@pytest.mark.parametrize("size", [0, 1_001])
async def test_a_batch_has_one_to_a_thousand_items(
    shared_admin: AsyncClient, shared_penstock: Penstock, size: int
) -> None:
    await refused(
        shared_admin, shared_penstock, [{"lane": "work", "payload": 1}] * size, path="/items/batch"
    )


async def test_a_body_over_the_limit_is_cut_off(
    shared_admin: AsyncClient, shared_penstock: Penstock
) -> None:
    """It is not read to its end, whatever its headers say."""
    sent = 0

    async def flood() -> AsyncGenerator[bytes]:
        nonlocal sent
        yield b'{"lane": "work", "payload": "'
        for _ in range(1_000):
            sent += 65_536
            yield b"x" * 65_536

    response = await shared_admin.post("/items", content=flood(), headers=JSON)

    problem(response, 413, "body-too-large")
    assert sent < 2_000_000
    assert (await count_items(shared_penstock)).accepted == 0


async def test_a_body_of_another_media_type_is_refused(
    shared_admin: AsyncClient, shared_penstock: Penstock
) -> None:
    response = await shared_admin.post("/items", data={"lane": "work", "payload": "1"})

    assert "application/json" in problem(response, 415, "unsupported-media-type")["detail"]
    assert (await count_items(shared_penstock)).accepted == 0


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/items", "lane"),
        ("/items?lane=work&limit=0", "limit"),
        ("/items?lane=work&limit=1001", "limit"),
        ("/items?lane=work&limit=many", "limit"),
        ("/items?lane=work&after=abc", "after"),
        ("/items?lane=work&after=-1", "after"),
        ("/items?lane=work&after=9999999999999999999", "after"),
        ("/items?lane=work&colour=red", "colour"),
        ("/items?lane=work&lane=other", "lane"),
        ("/items/by-key?lane=work&key=%00", "key"),
        ("/items/by-key?lane=work&key=", "key"),
        ("/items/0", "item_id"),
        ("/items/abc", "item_id"),
        ("/items/9223372036854775808", "item_id"),
        ("/items/1?item_id=2", "item_id"),
        ("/items/1.0", "item_id"),
        ("/items/89223650607113.001", "item_id"),
        ("/items/1e1", "item_id"),
        ("/items/+1", "item_id"),
        ("/items/%D9%A1", "item_id"),
        ("/items?lane=work&limit=1e1", "limit"),
        ("/items?lane=work&limit=10.0", "limit"),
        ("/items?lane=work&after=%D9%A1", "after"),
        ("/dead/replays/x", "replay_id"),
        ("/audit?subject=%00", "subject"),
        ("/events?until=0.5", "until"),
        ("/events?until=1e3", "until"),
        ("/events?from=-1", "from"),
        ("/events?from=2030-01-31", "from"),
        ("/api/v1/slots?configName=default&until=5", "until"),
    ],
)
async def test_a_wrong_parameter_is_named(shared_admin: AsyncClient, path: str, field: str) -> None:
    response = await shared_admin.get(path)

    assert problem(response, 400, "invalid-input")["field"] == field


@pytest.mark.parametrize("path", ["/nothing", "/items/", "/lanes/work/explode", "/lanes/%00"])
async def test_a_path_that_is_not_there_is_a_problem_too(
    shared_admin: AsyncClient, path: str
) -> None:
    response = await shared_admin.post(path)

    assert response.status_code in {400, 404, 405}
    assert response.headers["content-type"] == "application/problem+json"


async def test_a_wrong_method_is_answered_with_the_right_ones(shared_admin: AsyncClient) -> None:
    response = await shared_admin.delete("/lanes/work")

    problem(response, 405, "method-not-allowed")
    assert set(response.headers["allow"].split(", ")) == {"GET", "HEAD", "PUT", "PATCH"}


async def test_a_wrong_method_of_a_fixed_path_is_not_an_invalid_id(
    shared_admin: AsyncClient,
) -> None:
    response = await shared_admin.get("/items/batch")

    problem(response, 405, "method-not-allowed")
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize("path", ["/items", "/api/v1/slots/batch"])
async def test_a_compressed_body_is_refused_as_such(
    shared_admin: AsyncClient, shared_penstock: Penstock, path: str
) -> None:
    """It was taken for JSON that is malformed."""
    body = gzip.compress(b'{"lane": "work", "payload": 1}')

    response = await shared_admin.post(
        path, content=body, headers=JSON | {"Content-Encoding": "gzip"}
    )

    assert "Content-Encoding" in problem(response, 415, "unsupported-media-type")["detail"]
    assert response.headers["accept-encoding"] == "identity"
    assert (await count_items(shared_penstock)).accepted == 0


async def test_an_identity_encoding_is_no_compression(admin: AsyncClient) -> None:
    response = await admin.post(
        "/items", json={"lane": "work", "payload": 1}, headers={"Content-Encoding": "identity"}
    )

    assert response.status_code == 202


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (rb'{"lane": "\ud800", "payload": 1}', "surrogate"),
        (rb'{"lane": "work", "payload": "\ud800"}', "surrogate"),
        (rb'{"lane": "work", "payload": "\\\ud800"}', "surrogate"),
        (rb'{"lane": "work", "payload": "\udc00"}', "surrogate"),
        (rb'{"lane": "work", "payload": "\ud800', "truncated"),
        (rb'{"lane": "work", "payload": "\\ud800"', "truncated"),
        (rb'{"lane": "work", "payload": "\ud83d\ude00"', "truncated"),
    ],
)
async def test_half_a_surrogate_pair_is_not_a_truncated_body(
    shared_admin: AsyncClient, shared_penstock: Penstock, *, body: bytes, reason: str
) -> None:
    """Whoever reads that the body was cut looks for the fault in the network."""
    told = await refused(shared_admin, shared_penstock, body)

    assert reason in told["reason"]
