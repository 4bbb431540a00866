"""Whatever is wrong with a request is reported with the field's name, and nothing is kept."""

import json
from typing import Any

import asyncpg
import msgspec
import pytest
from httpx import AsyncClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import Penstock
from penstock.base.errors import InvalidInput
from penstock.domains.webhooks.event import read_data
from tests.api.scene import problem
from tests.domains.webhooks.scene import JSON, NOWHERE, Json, Tenant

EVENT: Json = {"type": "order.paid", "data": {"a": 1}}
SUBSCRIPTION: Json = {"url": NOWHERE, "event_types": ["order.*"]}


async def state_of(penstock: Penstock) -> list[Any]:
    """Return how many rows each table of webhooks has, and the audit."""
    row = await penstock.pool.fetchrow(
        """
        SELECT (SELECT count(*) FROM penstock.webhook_event),
            (SELECT count(*) FROM penstock.webhook_event_id),
            (SELECT count(*) FROM penstock.webhook_idempotency),
            (SELECT count(*) FROM penstock.webhook_subscription),
            (SELECT sum(version) FROM penstock.webhook_subscription),
            (SELECT count(*) FROM penstock.webhook_pattern),
            (SELECT count(*) FROM penstock.webhook_secret),
            (SELECT count(*) FROM penstock.webhook_replay),
            (SELECT count(*) FROM penstock.webhook_redelivery),
            (SELECT count(*) FROM penstock.audit)
        """
    )
    assert row is not None
    return list(row)


async def refused(tenant: Tenant, path: str, body: object, *, method: str = "POST") -> Json:
    """Send a body, bytes as they are, and return the problem; makes sure that nothing is left."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    before = await state_of(tenant.penstock)

    response = await tenant.client.request(method, path, content=content, headers=JSON)

    told = problem(response, 400, "invalid-input")
    assert told["detail"] == f"{told['field']}: {told['reason']}"
    assert await state_of(tenant.penstock) == before
    return told


def each(cases: list[tuple[str, Any, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("wrong", "field"), [case[1:] for case in cases], ids=[case[0] for case in cases]
    )


# ---------------------------------------------------------------------------------------- events

WRONG_EVENTS: list[tuple[str, Json, str]] = [
    ("type-empty", {"type": ""}, "type"),
    ("type-too-long", {"type": "a" * 256}, "type"),
    ("type-with-blank", {"type": "order paid"}, "type"),
    ("type-with-empty-part", {"type": "order..paid"}, "type"),
    ("type-with-eleven-parts", {"type": ".".join("abcdefghijk")}, "type"),
    ("type-wildcard", {"type": "order.*"}, "type"),
    ("type-with-newline", {"type": "order\n"}, "type"),
    ("type-with-nul", {"type": "order\x00"}, "type"),
    ("type-of-wrong-type", {"type": 5}, "type"),
    ("type-null", {"type": None}, "type"),
    ("id-empty", {"id": ""}, "id"),
    ("id-too-long", {"id": "a" * 129}, "id"),
    ("id-with-dot", {"id": "a.b"}, "id"),
    ("id-with-blank", {"id": "a b"}, "id"),
    ("id-with-newline", {"id": "a\n"}, "id"),
    ("id-with-umlaut", {"id": "ä"}, "id"),
    ("id-of-wrong-type", {"id": 5}, "id"),
    ("source-empty", {"source": ""}, "source"),
    ("source-too-long", {"source": "s" * 256}, "source"),
    ("source-with-nul", {"source": "a\x00b"}, "source"),
    ("source-of-wrong-type", {"source": ["a"]}, "source"),
    ("tenant-empty", {"tenant": ""}, "tenant"),
    ("tenant-too-long", {"tenant": "t" * 129}, "tenant"),
    ("tenant-with-nul", {"tenant": "a\x00"}, "tenant"),
    ("tenant-null", {"tenant": None}, "tenant"),
    ("unknown-field", {"colour": "red"}, "colour"),
    ("field-in-another-spelling", {"eventType": "x"}, "eventType"),
    ("data-with-nul", {"data": {"a": "b\x00"}}, "data"),
    ("data-name-with-nul", {"data": {"a\x00": 1}}, "data"),
    ("data-too-large", {"data": "x" * 262_143}, "data"),
]


@each(WRONG_EVENTS)
async def test_a_wrong_event_is_refused_with_its_field(
    tenant: Tenant, wrong: Json, field: str
) -> None:
    told = await refused(tenant, "/events", EVENT | wrong)

    assert told["field"] == field


@each(WRONG_EVENTS)
async def test_a_wrong_event_of_a_batch_is_invalid_alone(
    tenant: Tenant, wrong: Json, field: str
) -> None:
    body = [{"tenant": tenant.name} | EVENT | wrong]

    response = await tenant.client.post("/events/batch", content=json.dumps(body), headers=JSON)

    assert response.status_code == 200, response.text
    (result,) = response.json()
    assert result["outcome"] == "invalid"
    assert field in result["detail"]


WRONG_DATA: list[tuple[str, bytes, str]] = [
    ("deep", b"[" * 65 + b"]" * 65, "data"),
    ("very deep", b"[" * 100_000 + b"]" * 100_000, "body"),
    ("NaN", b"NaN", "body"),
    ("Infinity", b"-Infinity", "body"),
    ("not UTF-8", b'"\xff"', "data"),
    ("half a character in bytes", b'"\xed\xa0\x80"', "data"),
    ("overlong", b'"\xc0\x80"', "data"),
    ("control character", b'"\x01"', "body"),
    ("raw NUL", b'"\x00"', "body"),
    ("exponent", b"1e1000", "data"),
    ("large exponent", b"1E+999999999", "data"),
    ("small exponent", b"[1.5e-99999]", "data"),
    ("thousand digits", b"9" * 1_001, "data"),
    ("thousand decimals", b"0." + b"1" * 1_001, "data"),
    ("number with a leading zero", b"012", "body"),
    ("number without an end", b"1.", "body"),
    ("hexadecimal", b"0x10", "body"),
    ("single quotes", b"'a'", "body"),
    ("trailing comma", b"[1,]", "body"),
    ("comment", b"1/**/", "body"),
    ("half a character", rb'"\ud800"', "body"),
    ("the other half", rb'["\udc00x"]', "body"),
    ("halves in wrong order", rb'{"\udc00\ud800": 1}', "body"),
    ("bad escape", rb'"\x41"', "body"),
    ("cut escape", rb'"\u12"', "body"),
    ("nothing", b"", "body"),
]


@each(WRONG_DATA)
async def test_data_that_no_filter_could_read_is_refused(
    tenant: Tenant, wrong: bytes, field: str
) -> None:
    """Also while nobody filters: a subscription that does may come tomorrow."""
    body = b'{"type":"order.paid","data":' + wrong + b"}"

    told = await refused(tenant, "/events", body)

    assert told["field"] == field


@pytest.mark.parametrize("missing", ["type", "data"])
async def test_a_missing_field_is_named(tenant: Tenant, missing: str) -> None:
    told = await refused(tenant, "/events", {k: v for k, v in EVENT.items() if k != missing})

    assert (told["field"], told["reason"]) == (missing, "is missing")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"7", b'{"type":"a","data":1} x', b"\xff"]
)
async def test_a_body_that_is_no_event_is_refused(tenant: Tenant, body: bytes) -> None:
    told = await refused(tenant, "/events", body)

    assert told["field"] == "body"


async def test_a_body_that_is_too_large_is_not_even_read(tenant: Tenant) -> None:
    body = b'{"type":"a","data":"' + b"x" * 300_000 + b'"}'

    response = await tenant.client.post("/events", content=body, headers=JSON)

    problem(response, 413, "body-too-large")


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded"])
async def test_a_body_that_is_no_json_by_its_own_word_is_refused(
    tenant: Tenant, media_type: str
) -> None:
    headers = {"Content-Type": media_type}
    for path in ("/events", "/events/batch", "/subscriptions", "/replays"):
        response = await tenant.client.post(path, content=b"{}", headers=headers)
        problem(response, 415, "unsupported-media-type")


# ---------------------------------------------------------------------------------- subscriptions

WRONG_POLICIES: list[tuple[str, Json, str]] = [
    ("url-empty", {"url": ""}, "url"),
    ("url-too-long", {"url": "https://example.com/" + "x" * 2048}, "url"),
    ("url-without-scheme", {"url": "example.com"}, "url"),
    ("url-of-ftp", {"url": "ftp://example.com/"}, "url"),
    ("url-of-file", {"url": "file:///etc/passwd"}, "url"),
    ("url-with-password", {"url": "https://me:pass@example.com/"}, "url"),
    ("url-private", {"url": "http://10.0.0.1/"}, "url"),
    ("url-private-as-number", {"url": "http://167772161/"}, "url"),
    ("url-of-metadata", {"url": "http://169.254.169.254/latest/meta-data"}, "url"),
    ("url-private-in-ipv6", {"url": "http://[::ffff:10.0.0.1]/"}, "url"),
    ("url-with-port-0", {"url": "http://example.com:0/"}, "url"),
    ("url-with-port-65536", {"url": "http://example.com:65536/"}, "url"),
    ("url-with-newline", {"url": "http://example.com/\r\nX-A: b"}, "url"),
    ("url-with-nul", {"url": "http://example.com/\x00"}, "url"),
    ("url-of-wrong-type", {"url": 5}, "url"),
    ("types-empty", {"event_types": []}, "event_types"),
    ("types-too-many", {"event_types": [f"t{n}" for n in range(101)]}, "event_types"),
    ("types-of-wrong-type", {"event_types": "order"}, "event_types"),
    ("type-empty", {"event_types": ["order", ""]}, "event_types[1]"),
    ("type-with-blank", {"event_types": ["a b"]}, "event_types[0]"),
    ("type-with-star-inside", {"event_types": ["a.*.b"]}, "event_types[0]"),
    ("type-with-two-stars", {"event_types": ["**"]}, "event_types[0]"),
    ("type-with-nul", {"event_types": ["a\x00"]}, "event_types[0]"),
    ("type-of-wrong-type", {"event_types": ["a", 5]}, "event_types[1]"),
    ("filter-text", {"filter": "amount > 5"}, "filter"),
    ("filter-array", {"filter": []}, "filter"),
    ("filter-with-unknown-operator", {"filter": {"a": {"like": "x"}}}, "filter.a.like"),
    (
        "filter-too-deep",
        {"filter": {"not": {"not": {"not": {"not": {"not": {"a": 1}}}}}}},
        "filter",
    ),
    ("filter-too-large", {"filter": {"a": "x" * 9_000}}, "filter"),
    ("filter-with-nul", {"filter": {"a": "\x00"}}, "filter"),
    ("filter-name-with-nul", {"filter": {"a\x00": 1}}, "filter"),
    ("order-empty", {"ordering_key": ""}, "ordering_key"),
    ("order-with-empty-part", {"ordering_key": "a..b"}, "ordering_key"),
    ("order-too-deep", {"ordering_key": ".".join("abcdefghijk")}, "ordering_key"),
    ("order-too-long", {"ordering_key": "a" * 129}, "ordering_key"),
    ("order-with-nul", {"ordering_key": "a\x00"}, "ordering_key"),
    ("order-of-wrong-type", {"ordering_key": ["a"]}, "ordering_key"),
    ("description-too-long", {"description": "d" * 501}, "description"),
    ("description-with-nul", {"description": "\x00"}, "description"),
    ("description-null", {"description": None}, "description"),
    ("rate-0", {"rate_limit": 0}, "rate_limit"),
    ("rate-negative", {"rate_limit": -1}, "rate_limit"),
    ("rate-too-small", {"rate_limit": 0.0009}, "rate_limit"),
    ("rate-tiny", {"rate_limit": 5e-324}, "rate_limit"),
    ("rate-too-high", {"rate_limit": 100_001}, "rate_limit"),
    ("rate-huge", {"rate_limit": 1e308}, "rate_limit"),
    ("rate-huge-integer", {"rate_limit": 10**400}, "rate_limit"),
    ("rate-of-wrong-type", {"rate_limit": "fast"}, "rate_limit"),
    ("concurrency-0", {"concurrency": 0}, "concurrency"),
    ("concurrency-negative", {"concurrency": -1}, "concurrency"),
    ("concurrency-too-high", {"concurrency": 10_001}, "concurrency"),
    ("concurrency-beyond-int4", {"concurrency": 2**31}, "concurrency"),
    ("concurrency-beyond-int8", {"concurrency": 2**64}, "concurrency"),
    ("concurrency-half", {"concurrency": 1.5}, "concurrency"),
    ("concurrency-null", {"concurrency": None}, "concurrency"),
    ("timeout-0", {"timeout_seconds": 0}, "timeout_seconds"),
    ("timeout-negative", {"timeout_seconds": -1}, "timeout_seconds"),
    ("timeout-too-short", {"timeout_seconds": 0.09}, "timeout_seconds"),
    ("timeout-too-long", {"timeout_seconds": 60.001}, "timeout_seconds"),
    ("timeout-huge", {"timeout_seconds": 1e300}, "timeout_seconds"),
    ("timeout-long", {"timeout_seconds": 1e12}, "timeout_seconds"),
    ("timeout-null", {"timeout_seconds": None}, "timeout_seconds"),
    ("schedule-too-long", {"retry_schedule_seconds": [1] * 51}, "retry_schedule_seconds"),
    ("schedule-negative", {"retry_schedule_seconds": [1, -1]}, "retry_schedule_seconds[1]"),
    ("schedule-too-late", {"retry_schedule_seconds": [2_592_001]}, "retry_schedule_seconds[0]"),
    ("schedule-huge", {"retry_schedule_seconds": [1e300]}, "retry_schedule_seconds[0]"),
    ("schedule-of-wrong-type", {"retry_schedule_seconds": 5}, "retry_schedule_seconds"),
    ("headers-of-wrong-type", {"headers": [["a", "b"]]}, "headers"),
    ("unknown-field", {"colour": "red"}, "colour"),
]
WRONG_SUBSCRIPTIONS: list[tuple[str, Json, str]] = [
    *WRONG_POLICIES,
    ("tenant-empty", {"tenant": ""}, "tenant"),
    ("tenant-too-long", {"tenant": "t" * 129}, "tenant"),
    ("tenant-with-nul", {"tenant": "\x00"}, "tenant"),
    ("profile-unknown", {"profile": "slack"}, "profile"),
    ("scheme-unknown", {"scheme": "rsa"}, "scheme"),
    ("secret-too-short", {"secret": "whsec_AAAA"}, "secret"),
    ("secret-without-prefix", {"secret": "a" * 40}, "secret"),
    ("secret-with-nul", {"secret": "\x00" * 40}, "secret"),
    ("secret-of-github-too-short", {"secret": "short", "profile": "github"}, "secret"),
    ("secret-of-stripe-too-long", {"secret": "x" * 257, "profile": "stripe"}, "secret"),
    ("state", {"state": "paused"}, "state"),
]
WRONG_CHANGES: list[tuple[str, Json, str]] = [
    *WRONG_POLICIES,
    ("state-deleted", {"state": "deleted"}, "state"),
    ("state-disabled", {"state": "disabled"}, "state"),
    ("state-null", {"state": None}, "state"),
    ("tenant", {"tenant": "other"}, "tenant"),
    ("profile", {"profile": "github"}, "profile"),
    ("secret", {"secret": "whsec_" + "A" * 32}, "secret"),
]


def is_or_is_inside(field: str, wanted: str) -> bool:
    return field == wanted or field.startswith((f"{wanted}.", f"{wanted}["))


@each(WRONG_SUBSCRIPTIONS)
async def test_a_wrong_subscription_is_refused_with_its_field(
    tenant: Tenant, wrong: Json, field: str
) -> None:
    told = await refused(tenant, "/subscriptions", SUBSCRIPTION | wrong)

    assert is_or_is_inside(told["field"], field)


@each(WRONG_CHANGES)
async def test_a_wrong_change_is_refused_with_its_field(
    tenant: Tenant, wrong: Json, field: str
) -> None:
    subscribed = await tenant.subscribe()

    told = await refused(tenant, f"/subscriptions/{subscribed.id}", wrong, method="PATCH")

    assert is_or_is_inside(told["field"], field)


@pytest.mark.parametrize(
    "filter_",
    [
        b'{"a":"\xff"}', b'{"a":"\xed\xa0\x80"}', b'{"a":1e999999}', b'{"a":1,"a":2}', b"NaN",
        b'{"a":' + b"9" * 2_000 + b"}", b'{"a":"\x01"}', rb'{"a":"\q"}', rb'{"a":"\ud800"}',
        b"[" * 10_000,
    ],
)  # fmt: skip
async def test_a_filter_that_is_no_json_is_refused(tenant: Tenant, filter_: bytes) -> None:
    body = b'{"url":"http://127.0.0.1:9/","event_types":["*"],"filter":' + filter_ + b"}"

    told = await refused(tenant, "/subscriptions", body)

    assert told["field"].startswith(("filter", "body"))


@pytest.mark.parametrize("missing", ["url", "event_types"])
async def test_a_subscription_without_a_needed_field_is_refused(
    tenant: Tenant, missing: str
) -> None:
    body = {name: value for name, value in SUBSCRIPTION.items() if name != missing}

    told = await refused(tenant, "/subscriptions", body)

    assert (told["field"], told["reason"]) == (missing, "is missing")


# ---------------------------------------------------------------------------------------- replays

WRONG_REPLAYS: list[tuple[str, Json, str]] = [
    ("which-unknown", {"which": "some"}, "which"),
    ("types-empty", {"event_types": []}, "event_types"),
    ("types-too-many", {"event_types": ["a"] * 101}, "event_types"),
    ("type-wrong", {"event_types": ["a", "b..c"]}, "event_types[1]"),
    ("rate-0", {"rate": 0}, "rate"),
    ("rate-too-high", {"rate": 100_001}, "rate"),
    ("rate-of-wrong-type", {"rate": "fast"}, "rate"),
    ("from-without-zone", {"from": "2030-01-01T00:00:00"}, "from"),
    ("from-as-number", {"from": 1_900_000_000}, "from"),
    ("from-before-year-1", {"from": "0001-01-01T00:00:00+10:00"}, "from"),
    ("until-after-year-9999", {"until": "9999-12-31T23:59:59-10:00"}, "until"),
    ("until-of-february-30", {"until": "2030-02-30T00:00:00Z"}, "until"),
    ("dry-run-as-text", {"dry_run": "yes"}, "dry_run"),
    ("subscription-too-long", {"subscription_id": "s" * 65}, "subscription_id"),
    ("subscription-empty", {"subscription_id": ""}, "subscription_id"),
    ("subscription-with-nul", {"subscription_id": "\x00"}, "subscription_id"),
    ("unknown-field", {"colour": "red"}, "colour"),
]


@each(WRONG_REPLAYS)
async def test_a_wrong_replay_is_refused_with_its_field(
    tenant: Tenant, wrong: Json, field: str
) -> None:
    subscribed = await tenant.subscribe()

    told = await refused(tenant, "/replays", {"subscription_id": subscribed.id} | wrong)

    assert told["field"] == field


@pytest.mark.parametrize("state", ["finished", "stopped", 5, None])
async def test_a_replay_goes_into_known_states_only(tenant: Tenant, state: object) -> None:
    told = await refused(tenant, "/replays/1", {"state": state}, method="PATCH")

    assert told["field"] == "state"


# ---------------------------------------------------------------------------------------- queries

WRONG_QUERIES: list[tuple[str, str, str]] = [
    ("limit-0", "/events?limit=0", "limit"),
    ("limit-1001", "/events?limit=1001", "limit"),
    ("limit-word", "/subscriptions?limit=many", "limit"),
    ("limit-huge", f"/replays?limit={10**30}", "limit"),
    ("cursor-word", "/events?after=abc", "after"),
    ("cursor-negative", "/events?after=-1", "after"),
    ("cursor-too-long", f"/subscriptions?after={'9' * 19}", "after"),
    ("cursor-with-other-digits", "/replays?after=%D9%A3", "after"),
    ("cursor-empty", "/events?after=", "after"),
    ("from-word", "/events?from=yesterday", "from"),
    ("from-without-zone", "/events?from=2030-01-01T00:00:00", "from"),
    ("from-before-year-1", "/events?from=0001-01-01T00:00:00%2B10:00", "from"),
    ("until-after-year-9999", "/events?until=9999-12-31T23:59:59-10:00", "until"),
    ("tenant-empty", "/events?tenant=", "tenant"),
    ("tenant-with-nul", "/subscriptions?tenant=a%00b", "tenant"),
    ("tenant-too-long", f"/events/e1?tenant={'t' * 129}", "tenant"),
    ("type-with-nul", "/events?type=%00", "type"),
    ("unknown", "/events?colour=red", "colour"),
    ("unknown-of-one", "/events/e1?colour=red", "colour"),
    ("twice", "/events?limit=1&limit=2", "limit"),
    ("event-id-with-dot", "/events/a.b", "id"),
    ("event-id-with-nul", "/events/a%00", "id"),
    ("event-id-too-long", f"/events/{'a' * 129}/attempts", "id"),
    ("subscription-id-with-nul", "/subscriptions/%00", "id"),
    ("replay-id-word", "/replays/abc", "id"),
    ("replay-id-0", "/replays/0", "id"),
    ("replay-id-huge", f"/replays/{2**63}", "id"),
]


@pytest.mark.parametrize(
    ("path", "field"), [case[1:] for case in WRONG_QUERIES], ids=[case[0] for case in WRONG_QUERIES]
)
async def test_a_wrong_question_is_refused_with_its_field(
    shared_admin: AsyncClient, path: str, field: str
) -> None:
    told = problem(await shared_admin.get(path), 400, "invalid-input")

    assert told["field"] == field


# ------------------------------------------------------------------------------------------- fuzz

NUMBERS = st.from_regex(r"-?[0-9]{1,5}(\.[0-9]{1,5})?([eE][+-]?[0-9]{1,5})?", fullmatch=True)
TEXTS = st.text(alphabet=st.sampled_from('ab"\\/u0dDcC89fF\x00\x1f\x7fä\U0001f4b6')).map(
    lambda text: f'"{text}"'
)
PIECES = st.sampled_from(
    ['"', "\\", "\\u0000", "\\ud83d\\udcb6", "\\ud800", "\\udc00", "[", "]", "{", "}", ":", ",",
     "1", "e9999", "0" * 1_000, "null", "true", "NaN", " ", "\n", "\x00", "\x1f", "ä", "\u2028"]
)  # fmt: skip
ANYTHING: st.SearchStrategy[bytes] = (
    NUMBERS.map(str.encode)
    | TEXTS.map(str.encode)
    | st.lists(PIECES, max_size=12).map(lambda pieces: "".join(pieces).encode())
    | st.lists(TEXTS | NUMBERS, max_size=4).map(lambda parts: f"[{','.join(parts)}]".encode())
    | st.binary(max_size=12).map(lambda raw: b'"' + raw + b'"')
)


@given(raw=ANYTHING)
@settings(
    max_examples=600,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
async def test_whatever_is_accepted_as_data_the_database_can_read(
    shared_penstock: Penstock, raw: bytes
) -> None:
    """Else one event would fail all that are accepted together with it, once somebody filters."""
    body = b'{"type":"a","data":' + raw + b"}"
    try:
        given_data = msgspec.json.decode(body, type=Given).data
        text = read_data(given_data, bytes_max=100_000)
    except (msgspec.DecodeError, InvalidInput, UnicodeDecodeError):
        return

    try:
        await shared_penstock.pool.fetchval("SELECT $1::text::jsonb", text)
    except asyncpg.PostgresError as failed:
        raise AssertionError(f"{text!r} was accepted: {failed}") from failed


class Given(msgspec.Struct):
    """As much of an event as its data needs to come in."""

    type: str
    data: msgspec.Raw
