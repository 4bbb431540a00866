"""Subscriptions over REST: made, read, listed, changed, ended; and who may."""

from typing import Any

import pytest
from httpx import AsyncClient

from tests.api.scene import Callers, problem
from tests.domains.webhooks.scene import (
    NOWHERE,
    Json,
    Subscribed,
    Tenant,
    body_of,
    make_tenant,
)

EVERYTHING: Json = {
    "url": "https://example.com/hook?a=b",
    "event_types": ["order.*", "invoice.paid", "*"],
    "filter": {"amount": {"gte": 100.0}, "any": [{"a": 1}, {"b": None}]},
    "ordering_key": "order.id",
    "description": "Orders for the warehouse ✓",
    "profile": "svix",
    "rate_limit": 2.5,
    "concurrency": 7,
    "timeout_seconds": 3.5,
    "retry_schedule_seconds": [0, 1.5, 3600],
    "headers": {"X-Team": "blue", "Authorization": "Bearer 1"},
}


async def audit_of(tenant: Tenant, subscribed: Subscribed) -> list[Json]:
    """Return what was written down about a subscription, the oldest first."""
    lines = body_of(await tenant.client.get("/audit", params={"subject": subscribed.id}))
    return lines["items"][::-1]


@pytest.mark.covers("B6")
async def test_a_subscription_is_made_with_everything_that_was_asked_for(tenant: Tenant) -> None:
    body = EVERYTHING | {"tenant": tenant.name, "scheme": "hmac"}

    made = body_of(await tenant.client.post("/subscriptions", json=body), 201)

    assert made["secret"].startswith("whsec_")
    shown = made["subscription"]
    for name, value in EVERYTHING.items():
        if name != "headers":
            assert shown[name] == value, name
    assert shown["tenant"] == tenant.name
    assert shown["header_names"] == ["Authorization", "X-Team"]
    assert (shown["state"], shown["state_reason"]) == ("active", None)
    assert shown["created_at"] == shown["updated_at"]
    assert body_of(await tenant.client.get(f"/subscriptions/{shown['id']}")) == shown


@pytest.mark.covers("B6", "B51")
async def test_a_subscription_needs_no_more_than_a_url_and_types(tenant: Tenant) -> None:
    body = {"url": NOWHERE, "event_types": ["order.paid"]}

    shown = body_of(await tenant.client.post("/subscriptions", json=body), 201)["subscription"]

    assert shown | {"id": "", "created_at": "", "updated_at": ""} == {
        "id": "", "tenant": "default", "url": NOWHERE,
        "event_types": ["order.paid"], "filter": None, "ordering_key": None, "description": "",
        "state": "active", "active": True, "state_reason": None, "profile": "standard",
        "rate_limit": 100.0, "concurrency": 100, "timeout_seconds": 15.0,
        "retry_schedule_seconds": None, "header_names": [], "created_at": "", "updated_at": "",
    }  # fmt: skip


CHANGES: list[tuple[str, object]] = [
    ("url", "http://127.0.0.1:9/other"),
    ("event_types", ["mail.*"]),
    ("filter", {"amount": {"lt": 12.50}}),
    ("filter", None),
    ("ordering_key", "customer.id"),
    ("ordering_key", None),
    ("description", "another"),
    ("description", ""),
    ("state", "paused"),
    ("rate_limit", 0.001),
    ("rate_limit", 100_000),
    ("rate_limit", None),
    ("concurrency", 1),
    ("concurrency", 10_000),
    ("timeout_seconds", 0.1),
    ("timeout_seconds", 60.0),
    ("retry_schedule_seconds", [1.5]),
    ("retry_schedule_seconds", []),
    ("retry_schedule_seconds", [2_592_000.0] * 50),
    ("retry_schedule_seconds", None),
]


@pytest.mark.parametrize(("field", "value"), CHANGES)
async def test_each_field_changes_alone(tenant: Tenant, field: str, value: object) -> None:
    subscribed = await tenant.subscribe(**EVERYTHING | {"profile": "standard"})
    before = await tenant.read(subscribed)

    changed = await tenant.change(subscribed, **{field: value})

    assert changed[field] == value
    assert changed["updated_at"] > before["updated_at"]
    ignored = {field: None, "active": None, "updated_at": None}
    assert changed | ignored == before | ignored
    assert await tenant.read(subscribed) == changed


async def test_the_standard_schedule_is_one_word(tenant: Tenant) -> None:
    """As Standard Webhooks advises: ten attempts over several days."""
    made = await tenant.subscribe(retry_schedule_seconds="standard")
    other = await tenant.subscribe()
    changed = await tenant.change(other, retry_schedule_seconds="standard")

    minute, hour = 60, 3600
    expected = [5, 5 * minute, 30 * minute, *(n * hour for n in (2, 5, 10, 14, 20, 24))]
    assert (await tenant.read(made))["retry_schedule_seconds"] == expected
    assert changed["retry_schedule_seconds"] == expected


async def test_another_word_is_no_schedule(tenant: Tenant) -> None:
    body = {"url": NOWHERE, "event_types": ["*"], "retry_schedule_seconds": "often"}

    told = problem(await tenant.client.post("/subscriptions", json=body), 400, "invalid-input")

    assert told["field"] == "retry_schedule_seconds"


async def test_nothing_to_change_changes_nothing(tenant: Tenant) -> None:
    subscribed = await tenant.subscribe(**EVERYTHING)
    before = await tenant.read(subscribed)

    after = await tenant.change(subscribed)

    assert after | {"updated_at": ""} == before | {"updated_at": ""}


async def test_the_same_pattern_twice_is_kept_once(tenant: Tenant) -> None:
    subscribed = await tenant.subscribe(NOWHERE, "order.*", "mail", "order.*")

    assert (await tenant.read(subscribed))["event_types"] == ["order.*", "mail"]
    changed = await tenant.change(subscribed, event_types=["mail", "mail"])
    assert changed["event_types"] == ["mail"]


@pytest.mark.covers("B7")
async def test_subscriptions_are_listed_in_pages(tenant: Tenant) -> None:
    made = [await tenant.subscribe() for _ in range(5)]
    foreign = await make_tenant(tenant.client, tenant.penstock).subscribe()
    await tenant.client.delete(f"/subscriptions/{made[1].id}")
    await tenant.change(made[2], state="paused")

    async def page(**query: str) -> Json:
        query |= {"tenant": tenant.name, "limit": "2"}
        return body_of(await tenant.client.get("/subscriptions", params=query))

    first = await page()
    last = await page(after=first["next"])

    listed = [*first["subscriptions"], *last["subscriptions"]]
    assert [each["id"] for each in listed] == [made[n].id for n in (0, 2, 3, 4)]
    assert listed[1]["state"] == "paused"
    assert last["next"] is None
    everybody = body_of(await tenant.client.get("/subscriptions", params={"limit": "1000"}))
    assert everybody["subscriptions"][:-1] == listed
    assert everybody["subscriptions"][-1]["id"] == foreign.id
    beyond = await page(after="9" * 18)
    assert beyond == {"subscriptions": [], "next": None}


@pytest.mark.covers("B8")
async def test_a_deleted_subscription_is_gone(tenant: Tenant) -> None:
    subscribed = await tenant.subscribe()
    path = f"/subscriptions/{subscribed.id}"

    deleted = await tenant.client.delete(path)

    assert (deleted.status_code, deleted.content) == (204, b"")
    for method, below in [
        ("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/secret"), ("POST", "/test"),
        ("GET", "/public-keys"), ("GET", "/endpoint-status"),
    ]:  # fmt: skip
        body = {} if method in {"PATCH", "POST"} and below != "/test" else None
        response = await tenant.client.request(method, path + below, json=body)
        problem(response, 404, "unknown-subscription")
    replay = await tenant.client.post("/replays", json={"subscription_id": subscribed.id})
    problem(replay, 404, "unknown-subscription")


async def test_an_unknown_subscription_is_not_found(tenant: Tenant) -> None:
    for path in ("sub_nobody", "%F0%9F%92%B6"):
        problem(await tenant.client.get(f"/subscriptions/{path}"), 404, "unknown-subscription")
    problem(await tenant.client.get(f"/subscriptions/{'x' * 65}"), 400, "invalid-input")
    problem(await tenant.client.get("/replays/999999999"), 404, "unknown-replay")


async def test_every_change_is_audited(tenant: Tenant) -> None:
    subscribed = await tenant.subscribe(headers={"X-Team": "red"})
    await tenant.change(
        subscribed, filter={"a": 1e2}, rate_limit=None, headers={"X-Team": "blue"}, state="paused"
    )
    await tenant.client.post(f"/subscriptions/{subscribed.id}/secret", json={})
    await tenant.client.delete(f"/subscriptions/{subscribed.id}")

    lines = await audit_of(tenant, subscribed)

    assert [line["action"] for line in lines] == [
        "subscription.created", "subscription.changed", "subscription.secret_rotated",
        "subscription.changed",
    ]  # fmt: skip
    assert all(line["who"] for line in lines)
    after = lines[1]["after"]
    assert (after["rate_limit"], after["state"]) == (None, "paused")
    assert after["header_names"] == ["X-Team"]
    assert "blue" not in str(lines)
    assert lines[3]["after"] == {"state": "deleted"}


async def test_a_refused_change_is_not_audited_and_changes_nothing(tenant: Tenant) -> None:
    subscribed = await tenant.subscribe()
    before = await tenant.read(subscribed)

    response = await tenant.client.patch(
        f"/subscriptions/{subscribed.id}", json={"description": "new", "concurrency": 0}
    )

    problem(response, 400, "invalid-input")
    assert await tenant.read(subscribed) == before
    assert len(await audit_of(tenant, subscribed)) == 1


# ---------------------------------------------------------------------------------- who may what

MANAGING: list[tuple[str, str, Json | None]] = [
    ("POST", "/subscriptions", {"url": NOWHERE, "event_types": ["*"]}),
    ("PATCH", "/subscriptions/{id}", {"state": "paused"}),
    ("DELETE", "/subscriptions/{id}", None),
    ("POST", "/subscriptions/{id}/secret", {}),
    ("POST", "/subscriptions/{id}/test", None),
    ("POST", "/replays", {"subscription_id": "{id}"}),
    ("PATCH", "/replays/1", {"state": "paused"}),
]
READING = [
    "/events", "/events/e1", "/events/e1/attempts", "/subscriptions", "/subscriptions/{id}",
    "/subscriptions/{id}/public-keys", "/subscriptions/{id}/endpoint-status",
    "/replays", "/replays/1",
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "body"), MANAGING, ids=[f"{each[0]} {each[1]}" for each in MANAGING]
)
async def test_only_an_admin_manages(
    tenant: Tenant, shared_callers: Callers, *, method: str, path: str, body: Json | None
) -> None:
    subscribed = await tenant.subscribe()
    before = await tenant.read(subscribed)
    path = path.replace("{id}", subscribed.id)

    async def ask(client: AsyncClient) -> Any:
        return await client.request(method, path, json=body)

    for client in (shared_callers.producer, shared_callers.reader):
        problem(await ask(client), 403, "forbidden")
    problem(await ask(shared_callers.stranger), 401, "unauthenticated")
    assert await tenant.read(subscribed) == before


@pytest.mark.parametrize("path", READING)
async def test_a_produce_key_cannot_read(
    tenant: Tenant, shared_callers: Callers, path: str
) -> None:
    path = path.replace("{id}", (await tenant.subscribe()).id)

    problem(await shared_callers.producer.get(path), 403, "forbidden")
    problem(await shared_callers.stranger.get(path), 401, "unauthenticated")
    assert (await shared_callers.reader.get(path)).status_code in {200, 404}


async def test_a_producer_sends_events_and_a_reader_does_not(
    tenant: Tenant, shared_callers: Callers
) -> None:
    event = {"type": "order.paid", "data": 1, "tenant": tenant.name}

    body_of(await shared_callers.producer.post("/events", json=event), 202)
    body_of(await shared_callers.producer.post("/events/batch", json=[event]))
    for client, status, code in (
        (shared_callers.reader, 403, "forbidden"),
        (shared_callers.stranger, 401, "unauthenticated"),
    ):
        problem(await client.post("/events", json=event), status, code)
        problem(await client.post("/events/batch", json=[event]), status, code)
