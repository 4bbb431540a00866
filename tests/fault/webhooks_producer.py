"""Hands events in, over HTTP or by Kafka; what it does not know the end of, it repeats."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import httpx
from confluent_kafka import KafkaError, Message, Producer

from tests.fault.scene import PATIENCE
from tests.fault.waiting import LOOK, moment
from tests.fault.webhooks_plan import Event

BATCH_MAX = 100
PUBLISHED_MAX = 10  # Into Kafka at once, so that some message is always under way.
SINGLE_SHARE = 0.1  # Of requests, those that hand in one event by itself.
AWAY = 503  # The API is up and its database is not. Any other refusal is a fault of ours.
TIMEOUT_SECONDS = 15.0  # Longer than the API itself waits for a connection to its database.


Pace = Callable[[float], bool]  # Asked with the share that is sent: may more be sent?


@dataclass(frozen=True, slots=True)
class Topic:
    """Where in Kafka events are put."""

    bootstrap: str
    name: str


@dataclass(slots=True, kw_only=True)
class Producers:
    """What all producers share: where to send, and what they were told."""

    urls: Sequence[str]
    key: str
    accepted: Counter[str] = field(default_factory=Counter[str])  # Definite answers, by event.
    statuses: Counter[int] = field(default_factory=Counter[int])
    broken: int = 0  # Requests whose answer never came.
    known: int = 0  # Events that an earlier request of ours had brought in without our knowing.

    async def post(self, line: Sequence[Event], *, chance: random.Random, may_send: Pace) -> None:
        """Send a line of events in its order to one API or another."""
        headers = {"Authorization": f"Bearer {self.key}"}
        async with httpx.AsyncClient(headers=headers, timeout=TIMEOUT_SECONDS) as client:
            async for batch in _batches(line, chance, may_send, size_max=BATCH_MAX):
                await self._hand_in(client, batch, chance)

    async def publish(
        self, line: Sequence[Event], *, chance: random.Random, may_send: Pace, topic: Topic
    ) -> None:
        """Put a line of events into a topic; those of one account keep their order there."""
        producer = Producer(
            {
                "bootstrap.servers": topic.bootstrap,
                "enable.idempotence": True,
                "delivery.timeout.ms": int(PATIENCE * 1000),
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        async for batch in _batches(line, chance, may_send, size_max=PUBLISHED_MAX):
            for event in batch:
                producer.produce(
                    topic.name,
                    key=str(event.account),
                    value=json.dumps(event.body),
                    on_delivery=self._note_published,
                )
            assert await asyncio.to_thread(producer.flush, PATIENCE) == 0

    def _note_published(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        self.accepted[json.loads(message.value() or b"")["id"]] += 1

    async def _hand_in(
        self, client: httpx.AsyncClient, batch: Sequence[Event], chance: random.Random
    ) -> None:
        """Repeat until there is an answer that says what became of each event."""
        is_repeat = False
        while True:
            url = chance.choice(self.urls)
            try:
                answer = await self._post(client, url, batch)
            except httpx.TransportError:
                self.broken += 1
            else:
                self.statuses[answer.status_code] += 1
                if answer.status_code != AWAY:
                    self._note(batch, answer, is_repeat=is_repeat)
                    return
            is_repeat = True
            await moment(LOOK)

    async def _post(
        self, client: httpx.AsyncClient, url: str, batch: Sequence[Event]
    ) -> httpx.Response:
        if len(batch) == 1:
            key = {"Idempotency-Key": f"key-{batch[0].id}"}
            return await client.post(f"{url}/events", json=batch[0].body, headers=key)
        return await client.post(f"{url}/events/batch", json=[event.body for event in batch])

    def _note(self, batch: Sequence[Event], answer: httpx.Response, *, is_repeat: bool) -> None:
        assert answer.status_code == (202 if len(batch) == 1 else 200), answer.text
        told = answer.json()
        if len(batch) == 1:
            outcomes = [(told["id"], "accepted" if told["is_new"] else "existing")]
        else:
            outcomes = [(each["id"], each["outcome"]) for each in told]
        assert [event_id for event_id, _ in outcomes] == [event.id for event in batch]
        # A batch is accepted as a whole, so a repeat finds all of it or nothing.
        (outcome,) = {outcome for _, outcome in outcomes}
        assert outcome == "accepted" or (outcome == "existing" and is_repeat), outcomes
        self.known += len(outcomes) if outcome == "existing" else 0
        self.accepted.update(event_id for event_id, _ in outcomes)


async def _batches(
    line: Sequence[Event], chance: random.Random, may_send: Pace, *, size_max: int
) -> AsyncIterator[Sequence[Event]]:
    """Cut a line up; the next piece comes when it may be sent."""
    sent = 0
    while sent < len(line):
        while not may_send(sent / len(line)):
            await moment(LOOK)
        size = 1 if chance.random() < SINGLE_SHARE else chance.randint(1, size_max)
        yield line[sent : sent + size]
        sent += size
