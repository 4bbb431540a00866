"""What tests of Kafka do again and again."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

import msgspec
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from penstock import Penstock
from penstock.api import create_app
from penstock.base.aio import alongside
from penstock.base.log import get_logger
from penstock.base.meter import Meter
from penstock.integrations.kafka import consumer as ours
from penstock.integrations.kafka.publisher import MESSAGE_BYTES_MAX
from penstock.postgres.pool import Pool
from tests.api.scene import called
from tests.fault.waiting import is_blocked, until
from tests.kafka_broker import Broker

PATIENCE = 60.0  # Seconds for what takes one or two on an idle machine.
PARTITIONS = 4
QUICK: dict[str, str | int | bool] = {"session.timeout.ms": 1_500, "heartbeat.interval.ms": 200}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A topic, its dead topic and a group, on one broker."""

    broker: Broker
    topic: str
    dead_topic: str
    group: str

    @classmethod
    def create(cls, broker: Broker, name: str) -> "Stream":
        stream = cls(
            broker=broker, topic=f"events.{name}", dead_topic=f"dead.{name}", group=f"group.{name}"
        )
        broker.create_topic(stream.topic, PARTITIONS)
        broker.create_topic(stream.dead_topic, 1)
        return stream

    def environment(self, **more: str) -> dict[str, str]:
        """Return the settings that lead here."""
        return {
            "PENSTOCK_KAFKA_BOOTSTRAP": self.broker.bootstrap,
            "PENSTOCK_KAFKA_TOPIC": self.topic,
            "PENSTOCK_KAFKA_DEAD_TOPIC": self.dead_topic,
            "PENSTOCK_KAFKA_GROUP": self.group,
            **more,
        }

    def source(self, **options: str | int | bool) -> ours.Source:
        """Return what leads here for a consumer that is missed soon when it dies."""
        return ours.Source(
            bootstrap=self.broker.bootstrap,
            topic=self.topic,
            group=self.group,
            dead_topic=self.dead_topic,
            options=QUICK | {name.replace("_", "."): value for name, value in options.items()},
        )

    def with_dead_topic(self, *, partitions: int) -> "Stream":
        """Return the same with another dead topic, of several partitions."""
        wide = replace(self, dead_topic=f"wide.{self.dead_topic}")
        self.broker.create_topic(wide.dead_topic, partitions)
        return wide

    def put(
        self,
        *values: bytes | None,
        key: str | None = None,
        partition: int = -1,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """Put messages into the topic; return when they are there."""
        failures: list[object] = []
        producer = Producer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "log_level": 0,
                "message.max.bytes": MESSAGE_BYTES_MAX,
            }
        )
        for value in values:
            producer.produce(
                self.topic,
                value=value,
                key=key,
                partition=partition,
                headers=list(headers),
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        assert producer.flush(PATIENCE) == 0
        assert not failures, failures

    def put_events(self, *ids: str, **fields: Any) -> None:
        self.put(*(event(id=each, **fields) for each in ids))

    def read(self, topic: str, count: int) -> list[Message]:
        """Return that many messages of a topic, from its beginning."""
        return list(self._read(topic, count))

    def count(self, topic: str) -> int:
        """Return how many messages a topic has."""
        client = self._client("a reader")
        numbers = client.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
        places = [TopicPartition(topic, number) for number in numbers]
        marks = [client.get_watermark_offsets(place, timeout=PATIENCE) for place in places]
        client.close()
        return sum(high - low for low, high in marks)

    def committed(self) -> int:
        """Return how many messages the group has put behind it."""
        client = self._client(self.group)
        places = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        found = client.committed(places, timeout=PATIENCE)
        client.close()
        return sum(max(each.offset, 0) for each in found)

    async def until_committed(self, count: int) -> None:
        async def is_committed() -> bool:
            # A broker that has just started does not know its groups yet.
            with suppress(KafkaException):
                return await asyncio.to_thread(self.committed) == count
            return False

        await until(is_committed, within=PATIENCE)

    def _read(self, topic: str, count: int) -> list[Message]:
        client = self._client("a reader")
        numbers = client.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
        client.assign([TopicPartition(topic, number, 0) for number in numbers])
        found: list[Message] = []
        ends_at = monotonic() + PATIENCE
        while len(found) < count and monotonic() < ends_at:
            found += [each for each in client.consume(count, 0.1) if each.error() is None]
        client.close()
        assert len(found) == count
        return found

    def _client(self, group: str) -> Consumer:
        options: dict[str, Any] = {
            "bootstrap.servers": self.broker.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "log_level": 0,
        }
        return Consumer(options)


def event(**fields: Any) -> bytes:
    """Return an event as a producer of another language would write it."""
    return msgspec.json.encode({"type": "order.paid", "data": {"amount": 12}} | fields)


@dataclass(slots=True)
class Taker:
    """Takes messages and writes down which, batch by batch; `before` may make it wait or fail."""

    before: Callable[[Sequence[ours.Record]], Awaitable[None]] | None = None
    refuses: Mapping[bytes, str] = field(default_factory=dict[bytes, str])
    batches: list[list[bytes]] = field(default_factory=list[list[bytes]])
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, records: Sequence[ours.Record]) -> list[str | None]:
        self.asked.set()
        if self.before is not None:
            await self.before(records)
        values = [record.value or b"" for record in records]
        self.batches.append(values)
        return [self.refuses.get(value) for value in values]

    @property
    def taken(self) -> list[bytes]:
        return [value for batch in self.batches for value in batch]

    async def until_asked(self, count: int) -> None:
        async def was_asked() -> bool:
            return len(self.batches) >= count

        await until(was_asked, within=PATIENCE)

    async def until_taken(self, count: int) -> None:
        async def has_taken() -> bool:
            return len(set(self.taken)) >= count

        await until(has_taken, within=PATIENCE)


def consumer(
    source: ours.Source, taker: ours.Accept, *, meter: Meter | None = None
) -> ours.Consumer:
    return ours.Consumer(source, taker, log=get_logger(), meter=meter or Meter())


@asynccontextmanager
async def consuming(source: ours.Source, taker: ours.Accept) -> AsyncGenerator[asyncio.Event]:
    """Run a consumer while the body runs; what it lends stops the consumer."""
    stop = asyncio.Event()
    ended = asyncio.Event()

    async def run() -> None:
        try:
            await consumer(source, taker).run(stop)
        finally:
            ended.set()

    async with alongside(run()):
        try:
            yield stop
        finally:
            stop.set()
            async with asyncio.timeout(PATIENCE):
                await ended.wait()


async def subscribe(dsn: str, url: str) -> None:
    """Make a subscription to all events."""
    async with Penstock(dsn=dsn) as app, called(app, create_app(app)) as callers:
        asked = {"url": url, "event_types": ["*"]}
        response = await callers.admin.post("/subscriptions", json=asked)
        assert response.status_code == 201, response.text


async def count_events(db: Pool) -> tuple[int, int]:
    """Return how many events there are, and how many deliveries."""
    row = await db.fetchrow(
        "SELECT count(*), coalesce(sum(cardinality(item_ids)), 0) FROM penstock.webhook_event"
    )
    assert row is not None
    return int(row[0]), int(row[1])


async def until_accepted(db: Pool, count: int) -> None:
    async def are_accepted() -> bool:
        return (await count_events(db))[0] >= count

    await until(are_accepted, within=PATIENCE)


@asynccontextmanager
async def nobody_accepts(db: Pool) -> AsyncGenerator[None]:
    """Keep everybody who wants to accept an event waiting in the middle of it."""
    async with db.acquire() as holder, holder.transaction():
        await holder.execute("LOCK TABLE penstock.webhook_event IN ACCESS EXCLUSIVE MODE")
        yield


async def until_blocked(db: Pool) -> None:
    """Return when somebody waits for the one who holds the lock."""
    await until(lambda: is_blocked(db), within=PATIENCE)
