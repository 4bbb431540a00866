"""One status for an event with many deliveries, and the views that show it to people of SQL."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

import pytest

from penstock.postgres.pool import Row
from penstock.testing import FakeClock, run_due
from tests.api.scene import problem
from tests.domains.webhooks.scene import Json, Subscribed, Tenant, body_of
from tests.receiver import Hang, Reply, receiving

HOUR = timedelta(hours=1)


@pytest.mark.covers("B14")
async def test_an_event_goes_from_pending_over_retrying_to_delivered(
    own: Tenant, clock: FakeClock
) -> None:
    async with receiving(answers=[503, 200]) as receiver:
        await own.subscribe(receiver.url)
        event = await own.send()
        pending = await own.show(event["id"])
        await run_due(own.penstock, clock)
        retrying = await own.show(event["id"])
        clock.advance(HOUR)
        await run_due(own.penstock, clock)
        delivered = await own.show(event["id"])

    assert [each["status"] for each in (pending, retrying, delivered)] == [
        "pending", "retrying", "delivered",
    ]  # fmt: skip
    assert (pending["attempts"], pending["last_error"]) == (0, None)
    assert pending["next_attempt_at"] == pending["created_at"]
    assert (retrying["attempts"], retrying["last_error"]) == (1, "HTTP 503")
    assert retrying["next_attempt_at"] > retrying["created_at"]
    assert retrying["delivered_at"] is None
    assert (delivered["attempts"], delivered["last_error"]) == (2, None)
    assert delivered["next_attempt_at"] is None
    assert delivered["delivered_at"] is not None


@pytest.mark.covers("B14", "B64")
@pytest.mark.parametrize(
    ("answers", "status"),
    [
        ([200, 200], "delivered"),
        ([200, 404], "partly"),
        ([404, 404], "failed"),
        ([503, 200], "retrying"),
        ([503, 404], "retrying"),
    ],
)
async def test_the_status_of_an_event_sums_up_its_deliveries(
    tenant: Tenant, answers: list[int], status: str
) -> None:
    async with receiving(answers=answers[:1]) as first, receiving(answers=answers[1:]) as second:
        for receiver in (first, second):
            await tenant.subscribe(receiver.url, retry_schedule_seconds=[3600])
        event = await tenant.send()
        await first.wait_for(1)
        await second.wait_for(1)
        shown = await tenant.until_shown(event["id"], lambda event: event["attempts"] == 2)

    words = {200: "delivered", 404: "failed", 503: "retrying"}
    assert [each["status"] for each in shown["deliveries"]] == [words[code] for code in answers]
    assert shown["status"] == status
    assert (shown["delivered_at"] is not None) == (status == "delivered")
    assert (shown["last_error"] is None) == (status == "delivered")


async def test_an_event_under_way_is_not_yet_delivered(tenant: Tenant) -> None:
    answered = asyncio.Event()
    async with receiving(answers=[Reply(after=answered)]) as receiver:
        await tenant.subscribe(receiver.url)
        event = await tenant.send()
        await receiver.wait_for(1)
        shown = await tenant.show(event["id"])
        answered.set()
        await tenant.until(event["id"], "delivered")

    assert shown["status"] == "pending"
    assert shown["delivered_at"] is None


async def test_an_event_is_shown_with_a_page_of_its_deliveries_and_a_cursor(own: Tenant) -> None:
    """One with thousands of subscribers would be an answer of megabytes."""
    subscribed = [(await own.subscribe()).id for _ in range(102)]
    event = await own.send()

    shown = await own.show(event["id"])
    rest = await deliveries_of(own, event, after=shown["next"])
    pages = [page async for page in pages_of(own, event, limit=40)]

    assert [each["subscription_id"] for each in shown["deliveries"]] == subscribed[:100]
    assert [each["subscription_id"] for each in rest["deliveries"]] == subscribed[100:]
    assert rest["next"] is None
    assert [len(page) for page in pages] == [40, 40, 22]
    assert [each for page in pages for each in page] == shown["deliveries"] + rest["deliveries"]


async def test_an_event_with_few_deliveries_has_no_cursor(own: Tenant) -> None:
    await own.subscribe()
    event = await own.send()

    shown = await own.show(event["id"])

    assert (len(shown["deliveries"]), shown["next"]) == (1, None)
    assert await deliveries_of(own, event) == {"deliveries": shown["deliveries"], "next": None}


async def test_deliveries_of_an_unknown_event_are_not_found(tenant: Tenant) -> None:
    response = await tenant.client.get("/events/nothing/deliveries")

    problem(response, 404, "unknown-event")


async def pages_of(tenant: Tenant, event: Json, *, limit: int) -> AsyncGenerator[list[Json]]:
    after = None
    while True:
        page = await deliveries_of(tenant, event, after=after, limit=limit)
        yield page["deliveries"]
        after = page["next"]
        if after is None:
            return


async def deliveries_of(tenant: Tenant, event: Json, **query: Any) -> Json:
    params = {"tenant": tenant.name} | {name: each for name, each in query.items() if each}
    return body_of(await tenant.client.get(f"/events/{event['id']}/deliveries", params=params))


# ---------------------------------------------------------------------------------------- views


async def columns_of(tenant: Tenant, view: str) -> list[str]:
    rows = await tenant.penstock.pool.fetch(
        "SELECT column_name FROM information_schema.columns "
        "WHERE table_schema = 'penstock' AND table_name = $1",
        view,
    )
    return [row["column_name"] for row in rows]


async def event_row(tenant: Tenant, event_id: str) -> Row:
    row = await tenant.penstock.pool.fetchrow(
        "SELECT * FROM penstock.events WHERE tenant = $1 AND id = $2", tenant.name, event_id
    )
    assert row is not None
    return row


@pytest.mark.covers("B11")
async def test_the_view_of_events_has_the_columns_that_people_know(tenant: Tenant) -> None:
    assert set(await columns_of(tenant, "events")) >= {
        "id", "type", "source", "data", "status", "attempts", "max_attempts", "next_attempt_at",
        "last_error", "created_at", "updated_at", "delivered_at",
    }  # fmt: skip


@pytest.mark.covers("B12")
async def test_the_view_of_attempts_has_the_columns_that_people_know(tenant: Tenant) -> None:
    assert set(await columns_of(tenant, "delivery_attempts")) >= {
        "id", "event_id", "attempt_number", "status_code", "response_body", "error", "duration_ms",
        "created_at",
    }  # fmt: skip


@pytest.mark.covers("B13")
async def test_the_view_of_subscriptions_has_the_columns_that_people_know(tenant: Tenant) -> None:
    """All but the secret: what can be read there could sign."""
    columns = set(await columns_of(tenant, "subscriptions"))

    assert columns >= {"id", "url", "event_types", "rate_limit", "created_at", "active"}
    assert "secret" not in columns


@pytest.mark.covers("B11")
async def test_the_api_shows_an_event_with_the_names_of_the_dispatcher(
    own: Tenant, clock: FakeClock
) -> None:
    async with receiving(answers=[503]) as receiver:
        await own.subscribe(receiver.url)
        event = await own.send()
        pending = await own.show(event["id"])
        await run_due(own.penstock, clock)
        retrying = await own.show(event["id"])

    columns = set(await columns_of(own, "events"))
    assert retrying.keys() >= columns
    assert (retrying["attempts"], retrying["max_attempts"]) == (1, 5)
    assert pending["updated_at"] == pending["created_at"]
    (attempt,) = await own.attempts(event["id"])
    assert retrying["updated_at"] == attempt["created_at"]
    listed = body_of(await own.client.get("/events", params={"tenant": own.name}))["events"]
    assert [(each["max_attempts"], each["updated_at"]) for each in listed] == [
        (5, retrying["updated_at"])
    ]


@pytest.mark.covers("B13")
async def test_the_api_shows_a_subscription_with_the_names_of_the_dispatcher(
    tenant: Tenant,
) -> None:
    subscribed = await tenant.subscribe()
    active = await tenant.read(subscribed)
    paused = await tenant.change(subscribed, state="paused")

    assert active.keys() >= set(await columns_of(tenant, "subscriptions"))
    assert (active["active"], paused["active"]) == (True, False)


@pytest.mark.covers("B11", "B12", "B14")
async def test_the_views_show_what_the_api_shows(tenant: Tenant) -> None:
    async with receiving(answers=[Reply(503, b"busy"), Reply(200, b"thanks")]) as receiver:
        subscribed = await tenant.subscribe(receiver.url)
        event = await tenant.send("order.paid", {"a": 1.0}, source="shop")
        shown = await tenant.until(event["id"], "delivered")
        attempts = await tenant.attempts(event["id"])

    row = await event_row(tenant, event["id"])
    assert (row["type"], row["source"], row["data"]) == ("order.paid", "shop", '{"a": 1.0}')
    assert (row["status"], row["attempts"], row["max_attempts"]) == ("delivered", 2, 5)
    assert (row["next_attempt_at"], row["last_error"]) == (None, None)
    assert text_of(row["created_at"]) == shown["created_at"]
    assert text_of(row["delivered_at"]) == shown["delivered_at"]
    assert row["updated_at"] == row["delivered_at"]
    rows = await tenant.penstock.pool.fetch(
        "SELECT * FROM penstock.delivery_attempts WHERE event_id = $1 ORDER BY attempt_number",
        event["id"],
    )
    assert len({each["id"] for each in rows}) == 2
    for each, attempt in zip(rows, attempts, strict=True):
        assert each["subscription_id"] == attempt["subscription_id"] == subscribed.id
        assert text_of(each["created_at"]) == attempt["created_at"]
        for name in ("attempt_number", "status_code", "response_body", "error", "duration_ms"):
            assert each[name] == attempt[name]


@pytest.mark.covers("B11")
async def test_an_event_that_is_tried_again_says_when_it_changed(tenant: Tenant) -> None:
    async with receiving(answers=[503]) as receiver:
        await tenant.subscribe(receiver.url, retry_schedule_seconds=[3600])
        event = await tenant.send()
        await tenant.until(event["id"], "retrying")

    row = await event_row(tenant, event["id"])
    (attempt,) = await tenant.attempts(event["id"])
    assert (row["status"], row["attempts"], row["last_error"]) == ("retrying", 1, "HTTP 503")
    assert timedelta(minutes=50) < row["next_attempt_at"] - row["created_at"] < timedelta(hours=2)
    assert text_of(row["updated_at"]) == attempt["created_at"]


@pytest.mark.covers("B13", "B51")
async def test_the_view_of_subscriptions_shows_which_are_active(tenant: Tenant) -> None:
    active = await tenant.subscribe("http://127.0.0.1:9/a", "order.*", "invoice", rate_limit=7)
    paused, deleted = await tenant.subscribe(), await tenant.subscribe()
    await tenant.change(paused, state="paused")
    await tenant.client.delete(f"/subscriptions/{deleted.id}")

    async def row_of(subscribed: Subscribed) -> Row | None:
        return await tenant.penstock.pool.fetchrow(
            "SELECT * FROM penstock.subscriptions WHERE id = $1", subscribed.id
        )

    row = await row_of(active)
    assert row is not None
    assert (row["url"], row["event_types"]) == ("http://127.0.0.1:9/a", ["order.*", "invoice"])
    assert (row["rate_limit"], row["active"]) == (7, True)
    assert active.secret not in str(list(row.values()))
    row = await row_of(paused)
    assert row is not None
    assert row["active"] is False
    assert await row_of(deleted) is None


def text_of(at: object) -> str:
    return str(at).replace(" ", "T").replace("+00:00", "Z")


async def test_a_dead_delivery_shows_its_reason(tenant: Tenant) -> None:
    async with receiving(answers=[Hang()]) as receiver:
        await tenant.subscribe(receiver.url, timeout_seconds=0.1, retry_schedule_seconds=[])
        event = await tenant.send()
        shown = await tenant.until(event["id"], "failed")

    delivery: Json = shown["deliveries"][0]
    assert delivery["status"] == "failed"
    assert "timeout" in delivery["last_error"]
    assert shown["last_error"] == delivery["last_error"]
    assert (delivery["next_attempt_at"], delivery["delivered_at"]) == (None, None)
