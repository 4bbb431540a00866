"""Send events over HTTP or to Kafka; a request without a definite answer is repeated."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import httpx
from confluent_kafka import KafkaError, Message, Producer

from tests.fault.harness import WAIT_SECONDS
from tests.fault.waiting import POLL_SECONDS, pause
from tests.fault.webhooks_plan import Event

BATCH_MAX = 100
PUBLISHED_MAX = 10  # Per flush, so that some message is always in progress.
SINGLE_SHARE = 0.1  # Of requests, those with a single event.
UNAVAILABLE = 503  # The API runs and its database does not. Any other refusal is a bug.
TIMEOUT_SECONDS = 15.0  # Longer than the API itself waits for a connection to its database.


Pace = Callable[[float], bool]  # Given the share that is sent, returns whether more may be sent.


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of Kafka and how to reach it."""

    bootstrap: str
    name: str


@dataclass(slots=True, kw_only=True)
class Producers:
    """What all producers share: where to send, and what was answered."""

    urls: Sequence[str]
    key: str
    accepted: Counter[str] = field(default_factory=Counter[str])  # Definite answers, by event.
    statuses: Counter[int] = field(default_factory=Counter[int])
    broken: int = 0  # Requests without an answer.
    known: int = 0  # Events that an earlier request without an answer had stored.

    async def post(self, stream: Sequence[Event], *, chance: random.Random, may_send: Pace) -> None:
        """Send the events in order, each batch to a random API."""
        headers = {"Authorization": f"Bearer {self.key}"}
        async with httpx.AsyncClient(headers=headers, timeout=TIMEOUT_SECONDS) as client:
            async for batch in _batches(stream, chance, may_send, size_max=BATCH_MAX):
                await self._post_until_answered(client, batch, chance)

    async def publish(
        self, stream: Sequence[Event], *, chance: random.Random, may_send: Pace, topic: Topic
    ) -> None:
        """Publish the events to a topic; those of one account keep their order there."""
        producer = Producer(
            {
                "bootstrap.servers": topic.bootstrap,
                "enable.idempotence": True,
                "delivery.timeout.ms": int(WAIT_SECONDS * 1000),
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        async for batch in _batches(stream, chance, may_send, size_max=PUBLISHED_MAX):
            for event in batch:
                producer.produce(
                    topic.name,
                    key=str(event.account),
                    value=json.dumps(event.body),
                    on_delivery=self._note_published,
                )
            assert await asyncio.to_thread(producer.flush, WAIT_SECONDS) == 0

    def _note_published(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        self.accepted[json.loads(message.value() or b"")["id"]] += 1

    async def _post_until_answered(
        self, client: httpx.AsyncClient, batch: Sequence[Event], chance: random.Random
    ) -> None:
        """Repeat the request until an answer says which events were accepted."""
        is_repeat = False
        while True:
            url = chance.choice(self.urls)
            try:
                answer = await self._post(client, url, batch)
            except httpx.TransportError:
                self.broken += 1
            else:
                self.statuses[answer.status_code] += 1
                if answer.status_code != UNAVAILABLE:
                    self._note(batch, answer, is_repeat=is_repeat)
                    return
            is_repeat = True
            await pause(POLL_SECONDS)

    async def _post(
        self, client: httpx.AsyncClient, url: str, batch: Sequence[Event]
    ) -> httpx.Response:
        if len(batch) == 1:
            key = {"Idempotency-Key": f"key-{batch[0].id}"}
            return await client.post(f"{url}/events", json=batch[0].body, headers=key)
        return await client.post(f"{url}/events/batch", json=[event.body for event in batch])

    def _note(self, batch: Sequence[Event], answer: httpx.Response, *, is_repeat: bool) -> None:
        assert answer.status_code == (202 if len(batch) == 1 else 200), answer.text
        body = answer.json()
        if len(batch) == 1:
            outcomes = [(body["id"], "accepted" if body["is_new"] else "existing")]
        else:
            outcomes = [(each["id"], each["outcome"]) for each in body]
        assert [event_id for event_id, _ in outcomes] == [event.id for event in batch]
        # A batch is accepted as a whole, so a repeat finds all of it or nothing.
        (outcome,) = {outcome for _, outcome in outcomes}
        assert outcome == "accepted" or (outcome == "existing" and is_repeat), outcomes
        self.known += len(outcomes) if outcome == "existing" else 0
        self.accepted.update(event_id for event_id, _ in outcomes)


async def _batches(
    stream: Sequence[Event], chance: random.Random, may_send: Pace, *, size_max: int
) -> AsyncIterator[Sequence[Event]]:
    """Yield the events in batches, each when it may be sent."""
    sent = 0
    while sent < len(stream):
        while not may_send(sent / len(stream)):
            await pause(POLL_SECONDS)
        size = 1 if chance.random() < SINGLE_SHARE else chance.randint(1, size_max)
        yield stream[sent : sent + size]
        sent += size
