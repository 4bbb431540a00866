"""Events on their way in: kept before they are acknowledged, once, with all their deliveries."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import asyncpg
import pytest
from httpx import AsyncClient

from penstock import Penstock
from penstock.domains.webhooks.accept import accept_events
from penstock.domains.webhooks.event import AcceptedEvent, NewEvent
from tests.api.scene import problem
from tests.database import run_sql
from tests.domains.webhooks.scene import JSON, Json, Tenant, body_of, make_tenant
from tests.receiver import receiving

REFUSE = """
    CREATE FUNCTION penstock.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'not this one' USING ERRCODE = 'check_violation';
    END $$
"""


async def rows_of(penstock: Penstock) -> list[int]:
    """Return how many rows there are of all that an event brings with it."""
    row = await penstock.pool.fetchrow(
        """
        SELECT (SELECT count(*) FROM penstock.webhook_event),
            (SELECT count(*) FROM penstock.webhook_event_id),
            (SELECT count(*) FROM penstock.webhook_idempotency),
            (SELECT count(*) FROM penstock.item),
            (SELECT count(*) FROM penstock.ready)
        """
    )
    assert row is not None
    return list(row)


async def deliveries_of(tenant: Tenant, event_id: str) -> int:
    return len((await tenant.show(event_id))["deliveries"])


@asynccontextmanager
async def refusing(penstock: Penstock, table: str, condition: str) -> AsyncGenerator[None]:
    """Have the database refuse rows of a table for as long as the block lasts."""
    await run_sql(penstock.address, REFUSE)
    await run_sql(
        penstock.address,
        f"CREATE TRIGGER refuse BEFORE INSERT ON penstock.{table} FOR EACH ROW WHEN ({condition}) "
        "EXECUTE FUNCTION penstock.refuse()",
    )
    yield
    await run_sql(penstock.address, "DROP FUNCTION penstock.refuse CASCADE")


# --------------------------------------------------------------------------------- one event


@pytest.mark.covers("B1", "B2", "B4", "B5", "B65")
async def test_an_event_can_be_looked_at_as_soon_as_it_is_accepted(own: Tenant) -> None:
    """A producer that asks right after the 202 must not be told that there is no such event."""
    subscribed = await own.subscribe()

    response = await own.post("order.paid", {"amount": 12}, id="e1", source="shop")

    told = body_of(response, 202)
    assert told["id"] == "e1"
    assert told["is_new"] is True
    assert told["deliveries"] == 1
    shown = await own.show("e1")
    assert shown["tenant"] == own.name
    assert (shown["type"], shown["source"], shown["data"]) == (
        "order.paid",
        "shop",
        {"amount": 12},
    )
    assert shown["status"] == "pending"
    assert shown["created_at"] == told["accepted_at"]
    assert [each["subscription_id"] for each in shown["deliveries"]] == [subscribed.id]
    assert await own.attempts("e1") == []


async def test_an_event_without_an_id_is_given_one(own: Tenant) -> None:
    first, second = await own.send(), await own.send()

    assert first["id"].startswith("evt_")
    assert first["id"] != second["id"]
    assert (await own.show(first["id"]))["id"] == first["id"]


async def test_an_unknown_event_is_not_found(own: Tenant) -> None:
    for path in ("/events/nobody", "/events/nobody/attempts"):
        problem(await own.client.get(path), 404, "unknown-event")


@pytest.mark.covers("B65")
async def test_an_event_is_kept_with_all_its_deliveries_or_not_at_all(own: Tenant) -> None:
    """A 202 for an event of which one delivery is missing would lose that one for ever."""
    for _ in range(3):
        await own.subscribe()
    before = await rows_of(own.penstock)

    async with refusing(own.penstock, "item", "NEW.payload::text LIKE '%\"subscription\": 3%'"):
        response = await own.post(id="e1", key="k1")

        assert response.status_code == 500
        assert await rows_of(own.penstock) == before

    told = await own.send(id="e1", key="k1")
    assert told["is_new"] is True
    assert told["deliveries"] == 3


# ------------------------------------------------------------------------------------- repeats


async def test_a_repeat_is_answered_as_the_first_and_delivers_nothing_more(own: Tenant) -> None:
    """A producer whose answer was lost sends again; the subscriber must not notice."""
    await own.subscribe()
    first = await own.send("order.paid", {"a": 1}, id="e1", source="shop")
    before = await rows_of(own.penstock)

    second = await own.send("order.paid", {"a": 1}, id="e1", source="shop")

    assert second == first | {"is_new": False}
    assert await rows_of(own.penstock) == before


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"event_type": "order.lost"}, id="type"),
        pytest.param({"data": {"a": 2}}, id="data"),
        pytest.param({"source": "mill"}, id="source"),
        pytest.param({"source": None}, id="no source"),
    ],
)
async def test_the_id_of_a_different_event_is_a_conflict(tenant: Tenant, other: Json) -> None:
    """Silence would lose the second event: somebody would believe that it was sent."""
    event: Json = {"data": {"a": 1}, "source": "shop", "id": "e1"}
    await tenant.send(**event)

    response = await tenant.post(**event | other)

    problem(response, 409, "event-conflict")
    shown = await tenant.show("e1")
    assert (shown["type"], shown["data"], shown["source"]) == ("order.paid", {"a": 1}, "shop")


async def test_what_separates_the_fields_cannot_be_smuggled_into_one(tenant: Tenant) -> None:
    """Two events that differ must not look the same because their texts joined are equal."""
    await tenant.send("order.paid", b'"b"', source="a", id="e1")

    response = await tenant.post("order.paid", b'"b"', source="a\x1f", id="e1")

    problem(response, 409, "event-conflict")


async def test_an_idempotency_key_identifies_its_event(own: Tenant) -> None:
    """A producer without ids of its own can repeat itself, too."""
    await own.subscribe()
    first = await own.send(data=1, key="k1")

    second = await own.send(data=1, key="k1")

    assert second == first | {"is_new": False}
    assert (await rows_of(own.penstock))[0] == 1
    problem(await own.post(data=2, key="k1"), 409, "event-conflict")
    problem(await own.post(data=1, key="k1", id="other"), 409, "event-conflict")
    assert (await own.send(data=1, key="k1", id=first["id"]))["is_new"] is False
    assert (await own.send(data=1, key="k2"))["id"] != first["id"]


async def test_a_conflict_leaves_the_idempotency_key_free(own: Tenant) -> None:
    """Nothing was done, so whoever repairs the event may use the same key for it."""
    await own.send(data=1, id="e1")
    before = await rows_of(own.penstock)

    problem(await own.post(data=2, id="e1", key="k1"), 409, "event-conflict")

    assert await rows_of(own.penstock) == before
    assert (await own.send(data=2, id="e2", key="k1"))["is_new"] is True


async def test_ids_and_keys_are_taken_for_ever(own: Tenant) -> None:
    """Retention drops old events; a repeat of one must still not be delivered."""
    await own.subscribe()
    told = await own.send(data=1, id="e1", key="k1")
    await run_sql(own.penstock.address, "DELETE FROM penstock.webhook_event")

    again = await own.send(data=1, id="e1", key="k1")

    assert (again["id"], again["is_new"], again["accepted_at"]) == ("e1", False, None)
    problem(await own.post(data=2, id="e1"), 409, "event-conflict")
    problem(await own.post(data=1, id="e2", key="k1"), 409, "event-conflict")
    assert told["deliveries"] == (await rows_of(own.penstock))[4] == 1


@pytest.mark.parametrize("key", ["", "k" * 256])
async def test_an_idempotency_key_of_a_wrong_length_is_refused(tenant: Tenant, key: str) -> None:
    told = problem(await tenant.post(key=key), 400, "invalid-input")

    assert told["field"] == "Idempotency-Key"


async def test_tenants_know_nothing_of_each_other(tenant: Tenant) -> None:
    other = make_tenant(tenant.client, tenant.penstock)
    await tenant.subscribe()

    told = await other.send("order.paid", 1, id="e1", key="k1")
    mine = await tenant.send("order.lost", 2, id="e1", key="k1")

    assert (told["is_new"], told["deliveries"]) == (True, 0)
    assert (mine["is_new"], mine["deliveries"]) == (True, 1)
    assert (await other.show("e1"))["type"] == "order.paid"
    assert (await tenant.show("e1"))["type"] == "order.lost"
    await tenant.send(id="e2")
    query = {"tenant": other.name}
    problem(await tenant.client.get("/events/e2", params=query), 404, "unknown-event")
    listed = body_of(await tenant.client.get("/events", params=query))["events"]
    assert [each["id"] for each in listed] == ["e1"]


# ------------------------------------------------------------------------------- many at once


async def test_one_id_from_many_connections_is_accepted_once(own: Tenant) -> None:
    await own.subscribe()
    event = NewEvent(type="order.paid", data="1", id="e1", tenant=own.name, idempotency_key="k1")

    async def accept() -> AcceptedEvent:
        async with own.penstock.pool.acquire() as db:
            (accepted,) = await accept_events(db, [event])
            return accepted

    answers = await asyncio.gather(*(accept() for _ in range(8)))

    assert sorted(each.outcome for each in answers) == ["accepted", *["existing"] * 7]
    assert {(each.event_id, each.deliveries) for each in answers} == {("e1", 1)}
    assert await rows_of(own.penstock) == [1, 1, 1, 1, 1]


async def test_one_key_from_many_connections_makes_one_event(own: Tenant) -> None:
    """The ids are made up on the way, and all but one must be forgotten."""
    event = NewEvent(type="order.paid", data="1", tenant=own.name, idempotency_key="k1")

    async def accept() -> AcceptedEvent:
        async with own.penstock.pool.acquire() as db:
            (accepted,) = await accept_events(db, [event])
            return accepted

    answers = await asyncio.gather(*(accept() for _ in range(8)))

    assert sorted(each.outcome for each in answers) == ["accepted", *["existing"] * 7]
    assert len({each.event_id for each in answers}) == 1


async def test_batches_that_overlap_in_any_order_do_not_stop_each_other(own: Tenant) -> None:
    """Two callers that lock the same ids in opposite order would wait for each other for ever."""
    events = [
        NewEvent(
            type="order.paid",
            data="1",
            id=f"e{number}",
            tenant=own.name,
            idempotency_key=f"k{number}",
        )
        for number in range(50)
    ]

    async def accept(given: Sequence[NewEvent]) -> list[AcceptedEvent]:
        async with own.penstock.pool.acquire() as db:
            return await accept_events(db, given)

    orders = [events, events[::-1], events[25:] + events[:25]]
    answers = await asyncio.gather(*(accept(order) for order in orders * 2))

    outcomes = [each.outcome for answer in answers for each in answer]
    assert outcomes.count("accepted") == 50
    assert outcomes.count("existing") == 5 * 50
    for order, answer in zip(orders * 2, answers, strict=True):
        assert [each.event_id for each in answer] == [event.id for event in order]


async def test_concurrent_requests_get_their_own_responses(own: Tenant) -> None:
    """They share a statement, and nobody may get somebody else's answer."""
    await own.subscribe("http://127.0.0.1:9/", "even")
    await own.send("odd", "other", id="e1")

    answers = await asyncio.gather(
        *(
            own.post("even" if number % 2 == 0 else "odd", number, id=f"e{number}")
            for number in range(16)
        )
    )

    assert [each.status_code for each in answers] == [202, 409, *[202] * 14]
    for number, answer in enumerate(answers):
        if answer.status_code == 202:
            assert answer.json()["id"] == f"e{number}"
            assert answer.json()["deliveries"] == (number + 1) % 2


async def test_one_event_that_the_database_refuses_does_not_fail_its_neighbours(
    own: Tenant,
) -> None:
    async with refusing(own.penstock, "webhook_event_id", "NEW.event_id = 'e7'"):
        answers = await asyncio.gather(*(own.post(id=f"e{number}") for number in range(16)))

    statuses = [answer.status_code for answer in answers]
    assert statuses[7] >= 400
    assert {*statuses[:7], *statuses[8:]} == {202}
    assert (await rows_of(own.penstock))[0] == 15


# -------------------------------------------------------------------------------------- batches


async def send_batch(tenant: Tenant, *events: object) -> list[Json]:
    content = json.dumps(events)
    return body_of(await tenant.client.post("/events/batch", content=content, headers=JSON))


async def test_each_event_of_a_batch_is_answered_for_itself(own: Tenant) -> None:
    await own.subscribe("http://127.0.0.1:9/", "order.*")
    event = {"type": "order.paid", "data": 1, "tenant": own.name}
    await send_batch(own, event | {"id": "old"})

    results = await send_batch(
        own,
        event | {"id": "new"},
        event | {"id": "old"},
        event | {"id": "old", "data": 2},
        event | {"type": "order..paid"},
        event | {"id": "unwanted", "type": "invoice"},
        event,
        event | {"id": "twice"},
        event | {"id": "twice"},
        event | {"id": "twice", "data": 2},
        7,
        {"type": "order.paid"},
        event | {"colour": "red"},
    )

    assert [each["index"] for each in results] == list(range(12))
    assert [each["outcome"] for each in results] == [
        "accepted", "existing", "conflict", "invalid", "accepted", "accepted",
        "accepted", "existing", "conflict", "invalid", "invalid", "invalid",
    ]  # fmt: skip
    assert (results[0]["id"], results[0]["deliveries"]) == ("new", 1)
    assert (results[4]["id"], results[4]["deliveries"]) == ("unwanted", 0)
    assert results[5]["id"].startswith("evt_")
    assert "type" in results[3]["detail"]
    assert "data" in results[10]["detail"]
    assert "colour" in results[11]["detail"]
    assert (await rows_of(own.penstock))[0] == 5


async def test_a_batch_holds_a_thousand_events_and_no_more(own: Tenant) -> None:
    await own.subscribe()
    events = [{"type": "order.paid", "data": n, "tenant": own.name} for n in range(1_001)]

    refused = await own.client.post("/events/batch", json=events)
    empty = await own.client.post("/events/batch", json=[])

    assert problem(refused, 400, "invalid-input")["field"] == "body"
    assert problem(empty, 400, "invalid-input")["field"] == "body"
    assert (await rows_of(own.penstock))[0] == 0
    results = await send_batch(own, *events[:1_000])
    assert {each["outcome"] for each in results} == {"accepted"}
    assert (await rows_of(own.penstock))[3] == 1_000


async def test_a_batch_of_nothing_but_mistakes_is_answered(tenant: Tenant) -> None:
    results = await send_batch(tenant, 1, None, [])

    assert [each["outcome"] for each in results] == ["invalid"] * 3


@pytest.mark.parametrize("body", [b"", b"{", b"{}", b'"x"', b"[" * 100_000, b"[\xff]"])
async def test_a_batch_that_is_no_array_is_refused(tenant: Tenant, body: bytes) -> None:
    response = await tenant.client.post("/events/batch", content=body, headers=JSON)

    assert problem(response, 400, "invalid-input")["field"] == "body"


# --------------------------------------------------------------------------------- to the byte

VERBATIM = [
    pytest.param(b'{"amount":1.0}', id="1.0"),
    pytest.param(b"12345678901234567890", id="twenty digits"),
    pytest.param(b"-0", id="minus zero"),
    pytest.param(b"1E400", id="beyond floats"),
    pytest.param(b"0.10000000000000000000000001", id="more than a double holds"),
    pytest.param(b'{"b":1,"a":2,"b":3}', id="order and repeated names"),
    pytest.param(b'{ "a" :\t[ 1,\n2 ] }', id="blanks"),
    pytest.param('{"ä":"\u20ac \U0001f4b6"}'.encode(), id="unicode"),
    pytest.param(rb'"\u00e4 \/ \ud83d\udcb6 \\u0000"', id="escapes"),
    pytest.param(b'"' + b"x" * 200_000 + b'"', id="long"),
    pytest.param(b"[" * 64 + b"]" * 64, id="deep"),
    pytest.param(b"null", id="null"),
    pytest.param(b'""', id="empty text"),
]


@pytest.mark.parametrize("data", VERBATIM)
async def test_data_arrives_to_the_byte(tenant: Tenant, data: bytes) -> None:
    """Receivers verify bytes, and a number that was rounded on the way is another number."""
    async with receiving() as receiver:
        await tenant.subscribe(receiver.url)
        told = await tenant.send(data=data)
        (request,) = await receiver.wait_for(1)

    assert request.body.endswith(b'","data":' + data + b"}")
    shown = await tenant.client.get(f"/events/{told['id']}", params={"tenant": tenant.name})
    assert b'"data":' + data + b"," in shown.content


async def test_the_body_has_type_time_and_source(tenant: Tenant) -> None:
    async with receiving() as receiver:
        await tenant.subscribe(receiver.url)
        told = await tenant.send("order.paid", {"a": 1}, source="shop", id="e1")
        (request,) = await receiver.wait_for(1)

    body = json.loads(request.body)
    assert list(body) == ["id", "type", "source", "timestamp", "data"]
    assert body["timestamp"].startswith(told["accepted_at"][:19])
    assert (body["id"], body["type"], body["source"]) == ("e1", "order.paid", "shop")
    assert request.method == "POST"
    assert request.headers["content-type"] == "application/json"


# ----------------------------------------------------------------------------------------- SQL


async def test_an_event_is_accepted_in_somebody_elses_transaction(own: Tenant) -> None:
    """The order and the event that tells of it are kept together, from any language."""
    await own.subscribe()
    accept = "SELECT * FROM penstock.accept_event('order.paid', '{\"a\": 1}', 'e1', tenant => $1)"
    async with own.penstock.pool.acquire() as db:
        transaction = db.transaction()
        await transaction.start()
        row = await db.fetchrow(accept, own.name)
        await transaction.rollback()

        assert row is not None
        assert (row["outcome"], row["event_id"], row["deliveries"]) == ("accepted", "e1", 1)
        assert await rows_of(own.penstock) == [0] * 5

        async with db.transaction():
            await db.execute(accept, own.name)
            again = await db.fetchrow(accept, own.name)
        assert again is not None
        assert again["outcome"] == "existing"
    assert await rows_of(own.penstock) == [1, 1, 0, 1, 1]
    assert await deliveries_of(own, "e1") == 1


async def test_producers_of_sql_have_ids_and_keys_too(own: Tenant) -> None:
    pool = own.penstock.pool
    accept = "SELECT outcome, event_id FROM penstock.accept_event($1, '1', $2, $3, $4, $5)"

    first = await pool.fetchrow(accept, "order.paid", None, "shop", own.name, "k1")
    repeat = await pool.fetchrow(accept, "order.paid", None, "shop", own.name, "k1")
    other = await pool.fetchrow(accept, "order.lost", None, "shop", own.name, "k1")

    assert first is not None
    assert repeat is not None
    assert other is not None
    assert first["event_id"] == repeat["event_id"] == other["event_id"]
    assert [row["outcome"] for row in (first, repeat, other)] == [
        "accepted",
        "existing",
        "conflict",
    ]
    plain = await pool.fetchrow("SELECT * FROM penstock.accept_event('order.paid', '{}')")
    assert plain is not None
    assert plain["outcome"] == "accepted"
    assert plain["deliveries"] == 0, "the tenant is another"


@pytest.mark.parametrize(
    ("type_", "event_id", "source"),
    [
        ("order..paid", "e1", "shop"),
        ("a" * 256, "e1", "shop"),
        ("order.paid", "no blanks", "shop"),
        ("order.paid", "e1\n", "shop"),
        ("order.paid", "e1", ""),
    ],
)
async def test_the_database_itself_refuses_what_no_event_can_have(
    shared_penstock: Penstock, *, type_: str, event_id: str, source: str
) -> None:
    """Producers of SQL pass no check but this one."""
    with pytest.raises(asyncpg.CheckViolationError):
        await shared_penstock.pool.execute(
            "SELECT penstock.accept_event($1, '1', $2, $3)", type_, event_id, source
        )


# ---------------------------------------------------------------------------------------- lists


async def test_events_are_listed_in_pages_the_newest_first(tenant: Tenant) -> None:
    ids = [(await tenant.send("odd" if n % 2 else "even", n, id=f"e{n}"))["id"] for n in range(5)]

    async def page(client: AsyncClient, **query: str) -> Json:
        return body_of(await client.get("/events", params={"tenant": tenant.name} | query))

    first = await page(tenant.client, limit="2")
    second = await page(tenant.client, limit="2", after=first["next"])
    last = await page(tenant.client, limit="2", after=second["next"])

    shown = [*first["events"], *second["events"], *last["events"]]
    assert [each["id"] for each in shown] == ids[::-1]
    assert last["next"] is None
    assert "data" not in shown[0]
    odd = await page(tenant.client, type="odd")
    assert [each["id"] for each in odd["events"]] == ["e3", "e1"]
    middle = next(each for each in shown if each["id"] == "e2")["created_at"]
    later = await page(tenant.client, **{"from": middle})
    earlier = await page(tenant.client, until=middle)
    assert [each["id"] for each in later["events"]] == ["e4", "e3", "e2"]
    assert [each["id"] for each in earlier["events"]] == ["e1", "e0"]
