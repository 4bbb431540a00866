"""Items over REST: accepted once, found again, and operated on."""

from datetime import UTC, datetime, timedelta

import pytest
from httpx import AsyncClient

from penstock import Dead, Done, Penstock
from tests.api.scene import Callers, accept, claim_all, count_items, end_all, problem

LATER = datetime(2100, 1, 1, 12, tzinfo=UTC)


async def test_an_item_is_accepted_and_shown_as_it_was_sent(admin: AsyncClient) -> None:
    """A number that a float cannot hold must come back digit by digit."""
    body = (
        '{"lane": "work", "payload": {"big": 123456789012345678901234567890, "cents": 0.10},'
        ' "key": "k-1", "due_at": "2100-01-01T13:00:00+01:00", "order_key": "o",'
        ' "not_after": "2100-01-02T00:00:00Z"}'
    )

    accepted = await admin.post(
        "/items", content=body, headers={"Content-Type": "application/json"}
    )
    shown = await admin.get(f"/items/{accepted.json()['id']}")

    assert accepted.status_code == 202
    assert accepted.json()["is_new"] is True
    assert '"big":123456789012345678901234567890' in shown.text.replace(" ", "")
    assert '"cents":0.10' in shown.text.replace(" ", "")
    item = shown.json()
    assert item["state"] == "scheduled"
    assert item["key"] == "k-1"
    assert item["order_key"] == "o"
    assert datetime.fromisoformat(item["due_at"]) == LATER
    assert datetime.fromisoformat(item["not_after"]) == LATER + timedelta(hours=12)
    assert item["attempts"] == 0
    assert item["history"] == []


async def test_items_are_accepted_with_limit_keys(admin: AsyncClient) -> None:
    keys = {"tenant": "42", "provider": "stripe"}
    new = {"lane": "work", "payload": 1, "limit_keys": keys}

    one = (await admin.post("/items", json=new)).json()
    many = (await admin.post("/items/batch", json=[new])).json()["items"]

    for each in (one, *many):
        assert (await admin.get(f"/items/{each['id']}")).json()["limit_keys"] == keys
    listed = (await admin.get("/items", params={"lane": "work"})).json()["items"]
    assert [each["limit_keys"] for each in listed] == [keys, keys]


async def test_an_item_shows_how_its_attempts_ended(admin: AsyncClient, penstock: Penstock) -> None:
    item_id = await accept(admin)
    await end_all(penstock, Done({"reference": 7}))

    item = (await admin.get(f"/items/{item_id}")).json()

    (attempt,) = item["history"]
    assert item["state"] == "done"
    assert item["attempts"] == 1
    assert attempt["outcome"] == "done"
    assert attempt["result"] == {"reference": 7}
    assert attempt["duration_ms"] == 7


@pytest.mark.covers("E62")
async def test_the_same_key_and_payload_again_is_the_same_item(
    admin: AsyncClient, penstock: Penstock
) -> None:
    """A producer that got no answer must be able to ask again."""
    first = await admin.post("/items", json={"lane": "work", "payload": {"a": 1}, "key": "k"})

    again = await admin.post("/items", json={"lane": "work", "payload": {"a": 1}, "key": "k"})

    assert again.status_code == 202
    assert again.json() == {"id": first.json()["id"], "is_new": False}
    assert (await count_items(penstock)).accepted == 1


@pytest.mark.covers("A95", "E71")
async def test_the_same_key_with_another_payload_is_a_conflict_with_both_hashes(
    admin: AsyncClient, penstock: Penstock
) -> None:
    """Returning the first item would hide a mistake that may be about money."""
    item_id = await accept(admin, key="k", payload={"a": 1})

    response = await admin.post("/items", json={"lane": "work", "payload": {"a": 2}, "key": "k"})

    told = problem(response, 409, "key-conflict")
    assert told["item_id"] == item_id
    assert told["key"] == "k"
    assert told["lane"] == "work"
    assert len(told["stored_hash"]) == len(told["given_hash"]) == 64
    assert told["stored_hash"] != told["given_hash"]
    assert (await count_items(penstock)).accepted == 1


async def test_the_idempotency_header_is_the_key(admin: AsyncClient) -> None:
    headers = {"Idempotency-Key": "from-header"}
    body = {"lane": "work", "payload": {}}

    first = await admin.post("/items", json=body, headers=headers)
    again = await admin.post("/items", json=body | {"key": "from-header"}, headers=headers)
    found = await admin.get("/items/by-key", params={"lane": "work", "key": "from-header"})

    assert again.json() == {"id": first.json()["id"], "is_new": False}
    assert found.json()["id"] == first.json()["id"]


async def test_a_key_that_differs_from_the_header_is_refused(
    admin: AsyncClient, penstock: Penstock
) -> None:
    response = await admin.post(
        "/items",
        json={"lane": "work", "payload": {}, "key": "a"},
        headers={"Idempotency-Key": "b"},
    )

    assert problem(response, 400, "invalid-input")["field"] == "key"
    assert (await count_items(penstock)).accepted == 0


async def test_a_batch_is_answered_item_by_item_in_its_order(
    admin: AsyncClient, penstock: Penstock
) -> None:
    """Items of several lanes may come mixed; each answer must belong to its own item."""
    known = await accept(admin, key="k-1", payload=1)
    batch = [
        {"lane": "work", "payload": 0, "key": "k-0"},
        {"lane": "payments", "payload": {"amount": "12.50"}, "key": "p-0"},
        {"lane": "work", "payload": 1, "key": "k-1"},
        {"lane": "payments", "payload": {"amount": 3}, "key": "p-1"},
    ]

    response = await admin.post("/items/batch", json=batch)

    assert response.status_code == 202
    answers = response.json()["items"]
    assert [answer["is_new"] for answer in answers] == [True, True, False, True]
    assert answers[2]["id"] == known
    for sent, answer in zip(batch, answers, strict=True):
        shown = (await admin.get(f"/items/{answer['id']}")).json()
        assert (shown["lane"], shown["key"], shown["payload"]) == (
            sent["lane"],
            sent["key"],
            sent["payload"],
        )
    assert (await count_items(penstock)).accepted == 4


async def test_a_batch_of_a_thousand_is_accepted(admin: AsyncClient, penstock: Penstock) -> None:
    batch = [{"lane": "work", "payload": number} for number in range(1_000)]

    response = await admin.post("/items/batch", json=batch)

    assert len(response.json()["items"]) == 1_000
    assert (await count_items(penstock)).accepted == 1_000


async def test_pages_lead_through_all_items_once(admin: AsyncClient) -> None:
    ids = [await accept(admin) for _ in range(5)]
    await accept(admin, lane="payments", payload={"amount": "1"})

    seen: list[int] = []
    query: dict[str, str | int] = {"lane": "work", "limit": 2}
    pages = 0
    while True:
        page = (await admin.get("/items", params=query)).json()
        seen += [item["id"] for item in page["items"]]
        pages += 1
        if page["next"] is None:
            break
        query["after"] = page["next"]

    assert seen == sorted(ids, reverse=True)
    assert pages == 3


async def test_a_page_that_is_exactly_full_has_no_next(admin: AsyncClient) -> None:
    ids = [await accept(admin) for _ in range(2)]

    page = (await admin.get("/items", params={"lane": "work", "limit": 2})).json()

    assert [item["id"] for item in page["items"]] == sorted(ids, reverse=True)
    assert page["next"] is None


@pytest.mark.covers("A96")
async def test_an_unclaimed_item_can_be_cancelled_and_moved(
    admin: AsyncClient, penstock: Penstock
) -> None:
    moved = await accept(admin)
    ended = await accept(admin)

    rescheduled = await admin.post(f"/items/{moved}/reschedule", json={"due_at": LATER.isoformat()})
    cancelled = await admin.post(f"/items/{ended}/cancel")
    repeated = await admin.post(f"/items/{ended}/cancel")

    assert rescheduled.json()["state"] == "scheduled"
    assert datetime.fromisoformat(rescheduled.json()["due_at"]) == LATER
    assert cancelled.json()["state"] == "cancelled"
    assert repeated.json()["state"] == "cancelled"
    counted = await count_items(penstock)
    assert (counted.ready, counted.cancelled) == (1, 1)


@pytest.mark.parametrize("verb", ["cancel", "retry", "reschedule"])
async def test_a_claimed_item_is_left_alone(
    admin: AsyncClient, penstock: Penstock, verb: str
) -> None:
    """Its call may already be on its way."""
    item_id = await accept(admin)
    await claim_all(penstock)

    body = {"due_at": LATER.isoformat()} if verb == "reschedule" else {}
    response = await admin.post(f"/items/{item_id}/{verb}", json=body)

    told = problem(response, 409, "state-conflict")
    assert told["state"] == "leased"
    assert told["item_id"] == item_id
    assert (await count_items(penstock)).leased == 1


async def test_a_dead_item_can_be_retried(admin: AsyncClient, penstock: Penstock) -> None:
    item_id = await accept(admin)
    await end_all(penstock, Dead("broken"))

    response = await admin.post(f"/items/{item_id}/retry")

    assert response.json()["state"] == "ready"


async def test_what_is_done_to_an_item_is_audited_with_the_caller(admin: AsyncClient) -> None:
    item_id = await accept(admin)
    await admin.post(f"/items/{item_id}/cancel")

    lines = (await admin.get("/audit", params={"subject": str(item_id)})).json()["items"]

    keys = (await admin.get("/keys")).json()["keys"]
    key_id = next(key["key_id"] for key in keys if key["name"] == "admin")
    assert [(line["who"], line["action"]) for line in lines] == [
        (f"key:{key_id}", "item.cancelled")
    ]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/items/17"),
        ("POST", "/items/17/cancel"),
        ("POST", "/items/17/retry"),
        ("POST", "/items/17/reschedule"),
        ("GET", "/items/by-key?lane=work&key=none"),
    ],
)
async def test_an_item_that_is_not_there_is_not_found(
    shared_admin: AsyncClient, method: str, path: str
) -> None:
    body = {"due_at": LATER.isoformat()} if path.endswith("reschedule") else {}
    response = await shared_admin.request(method, path, json=body)

    problem(response, 404, "unknown-item")


async def test_a_producer_may_accept_and_nothing_else(callers: Callers) -> None:
    item_id = await accept(callers.producer)

    response = await callers.producer.get(f"/items/{item_id}")

    assert problem(response, 403, "forbidden")["scope"] == "read"


async def test_a_page_of_items_takes_filters(admin: AsyncClient, penstock: Penstock) -> None:
    dead = await accept(admin)
    await end_all(penstock, Dead("refused"))
    other = await accept(admin, order_key="a")

    async def found(**query: str) -> list[int]:
        page = (await admin.get("/items", params={"lane": "work"} | query)).json()
        assert page["next"] is None
        return [item["id"] for item in page["items"]]

    assert await found(state="dead") == [dead]
    assert await found(order_key="a") == [other]
    assert await found(since=LATER.isoformat()) == []
    assert await found(until=LATER.isoformat()) == [other, dead]
    refused = await admin.get("/items", params={"lane": "work", "state": "lost"})
    assert refused.status_code == 400
