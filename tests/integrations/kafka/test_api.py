"""POST /events with PENSTOCK_EVENTS_TO=kafka: the broker has the event before the caller hears."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import msgspec
import pytest
from confluent_kafka import KafkaException
from httpx import AsyncClient

from penstock import Penstock
from penstock.api import create_app
from penstock.base.aio import alongside
from penstock.base.errors import BadSetting
from penstock.base.settings import read_once
from penstock.compose.webhooks import event_consumer
from penstock.postgres.pool import Pool
from tests.api.scene import called, problem
from tests.fault.waiting import until
from tests.integrations.kafka.scene import (
    PARTITIONS,
    PATIENCE,
    Stream,
    count_events,
    until_accepted,
)
from tests.receiver import receiving


@pytest.fixture
def publishing(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> Generator[Stream]:
    """Have events published to the test's own topic."""
    yield from chosen(stream, monkeypatch)


@pytest.fixture
def publishing_to_mortal(
    mortal_stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> Generator[Stream]:
    """Have events published to a broker that may be killed."""
    yield from chosen(mortal_stream, monkeypatch)


def chosen(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> Generator[Stream]:
    for name, value in stream.environment(PENSTOCK_EVENTS_TO="kafka").items():
        monkeypatch.setenv(name, value)
    read_once.cache_clear()
    yield stream
    read_once.cache_clear()


@asynccontextmanager
async def calling(dsn: str) -> AsyncGenerator[tuple[Penstock, AsyncClient]]:
    async with Penstock(dsn=dsn) as app, called(app, create_app(app)) as callers:
        yield app, callers.admin


@pytest.mark.covers("B2", "B3", "B65")
async def test_an_event_is_in_the_topic_and_not_in_the_database(
    dsn: str, db: Pool, publishing: Stream
) -> None:
    async with calling(dsn) as (_, client):
        body = b'{"type": "order.paid", "data": {"amount": 12.00}, "source": "shop"}'
        headers = {"Content-Type": "application/json"}
        response = await client.post("/events", content=body, headers=headers)
        shown = await client.get(f"/events/{response.json()['id']}")

    assert response.status_code == 202
    told = response.json()
    assert told == {"id": told["id"], "is_new": True, "accepted_at": None, "deliveries": None}
    (message,) = publishing.read(publishing.topic, 1)
    assert message.key() == f"default/{told['id']}".encode()
    assert message.value() == (
        b'{"id":"%b","type":"order.paid","source":"shop","tenant":"default",'
        b'"data":{"amount": 12.00}}' % told["id"].encode()
    )
    assert await count_events(db) == (0, 0)
    problem(shown, 404, "unknown-event")


@pytest.mark.covers("B3", "B4", "B18", "B65")
async def test_an_event_that_was_published_is_shown_once_it_was_consumed(
    dsn: str, db: Pool, publishing: Stream
) -> None:
    """The whole way: over HTTP into the topic, from there into the database, and out again."""
    async with calling(dsn) as (app, client), receiving() as receiver:
        asked = {"url": receiver.url, "event_types": ["order.*"]}
        assert (await client.post("/subscriptions", json=asked)).status_code == 201
        event_id = (await post(client, type="order.paid", data={"amount": 12}))["id"]
        stop = asyncio.Event()
        async with alongside(consuming(app, stop), app.run_worker(stop)):
            await until_accepted(db, 1)
            await receiver.wait_for(1)

            async def is_delivered() -> bool:
                return (await client.get(f"/events/{event_id}")).json()["status"] == "delivered"

            await until(is_delivered, within=PATIENCE)
            await publishing.until_committed(1)

    assert receiver.requests[0].headers["webhook-id"] == event_id
    assert msgspec.json.decode(receiver.requests[0].body)["data"] == {"amount": 12}


@pytest.mark.covers("B3", "B56")
async def test_events_go_through_events_pending_to_dispatch_workers_unless_set_otherwise(
    dsn: str, db: Pool, *, publishing: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Producers and consumers of the dispatcher that this replaces have these names configured."""
    usual = replace(publishing, topic="events.pending", group="dispatch-workers")
    with suppress(KafkaException):  # A broker that is given may have the topic already.
        usual.broker.create_topic(usual.topic, PARTITIONS)
    for name in ("PENSTOCK_KAFKA_TOPIC", "PENSTOCK_KAFKA_GROUP"):
        monkeypatch.delenv(name)
    read_once.cache_clear()
    committed = usual.committed()

    async with calling(dsn) as (app, client):
        event_id = (await post(client, type="order.paid", data=1))["id"]
        async with alongside(consuming(app, asyncio.Event())):
            await until_accepted(db, 1)

            async def is_committed() -> bool:
                return await asyncio.to_thread(usual.committed) > committed

            await until(is_committed, within=PATIENCE)
        shown = await client.get(f"/events/{event_id}")

    assert shown.status_code == 200


async def test_a_repeat_with_the_same_key_has_the_same_id_and_is_one_event(
    dsn: str, db: Pool, publishing: Stream
) -> None:
    async with calling(dsn) as (app, client):
        headers = {"Idempotency-Key": "k"}
        told = [await post(client, headers, type="t", data=1) for _ in range(2)]
        await post(client, type="last", data=1)
        async with alongside(consuming(app, asyncio.Event())):
            await publishing.until_committed(3)

    assert told[0]["id"] == told[1]["id"]
    assert (await count_events(db))[0] == 2


@pytest.mark.covers("B3")
async def test_a_bad_event_is_refused_before_it_is_published(dsn: str, publishing: Stream) -> None:
    async with calling(dsn) as (_, client):
        refused = await client.post("/events", json={"type": "order..", "data": 1})
        await post(client, type="good", data=1)

    problem(refused, 400, "invalid-input")
    (message,) = publishing.read(publishing.topic, 1)
    assert b'"good"' in (message.value() or b"")


@pytest.mark.covers("B65")
async def test_a_broker_that_is_away_is_a_503_and_never_a_202(
    dsn: str, publishing_to_mortal: Stream
) -> None:
    """A producer that got 202 forgets the event; nobody else would have it."""
    publishing_to_mortal.broker.kill()
    try:
        async with calling(dsn) as (_, client):
            response = await client.post("/events", json={"type": "order.paid", "data": 1})
    finally:
        publishing_to_mortal.broker.revive()

    problem(response, 503, "unavailable")
    assert response.headers["retry-after"]


async def test_without_the_setting_events_go_into_the_database(dsn: str, db: Pool) -> None:
    async with calling(dsn) as (_, client):
        told = await post(client, type="order.paid", data=1)

    assert told["deliveries"] == 0
    assert (await count_events(db))[0] == 1


async def test_a_consumer_needs_to_know_where_kafka_is(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_KAFKA_BOOTSTRAP", raising=False)
    read_once.cache_clear()
    async with Penstock(dsn=dsn) as app:
        with pytest.raises(BadSetting, match="PENSTOCK_KAFKA_BOOTSTRAP"):
            event_consumer(app.resources)


async def consuming(app: Penstock, stop: asyncio.Event) -> None:
    await app.run_service(event_consumer(app.resources), stop)


async def post(
    client: AsyncClient, headers: dict[str, str] | None = None, **event: object
) -> dict[str, object]:
    response = await client.post("/events", json=event, headers=headers)
    assert response.status_code == 202, response.text
    return response.json()
