"""Consume a topic in batches. An offset is committed after its message is accepted.

No message is skipped: a batch that cannot be accepted now is kept and tried again, and a message
that can never be accepted goes to the dead topic, with the reason.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from typing import NamedTuple

from confluent_kafka import Message

from penstock.base.aio import finish, outcome_of, retry_delays, spawn
from penstock.base.errors import Unavailable
from penstock.base.log import Logger, describe
from penstock.base.meter import Meter
from penstock.integrations.kafka.dead_topic import DeadTopic
from penstock.integrations.kafka.member import Member, offset_of, part_of
from penstock.integrations.kafka.metrics import MESSAGES
from penstock.integrations.kafka.options import Options

STOP_CHECK_INTERVAL = timedelta(milliseconds=100)  # How often a wait checks for a stop.
LEAVE_GRACE = timedelta(seconds=5)  # A few milliseconds when the broker is available.


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The topic to consume, and the dead topic for messages that can never be accepted."""

    bootstrap: str
    topic: str
    group: str
    dead_topic: str
    options: Options = field(default_factory=dict[str, str | int | bool], repr=False)  # A password.


class Record(NamedTuple):
    """One message; `place` is unique, and the same each time the message is read."""

    value: bytes | None
    place: str


# Accepts messages durably; returns for each the reason why it can never be accepted, or None.
# Raises Unavailable when the whole batch should be tried again. Gets some again after a crash.
Accept = Callable[[Sequence[Record]], Awaitable[Sequence[str | None]]]


class Consumer:
    """Passes the messages of a topic to `accept`, in the order of each partition."""

    def __init__(self, source: Source, accept: Accept, *, log: Logger, meter: Meter) -> None:
        self._source = source
        self._accept = accept
        self._log = log.bind(topic=source.topic, group=source.group)
        self._meter = meter
        self._dead = DeadTopic(
            source.bootstrap, source.dead_topic, log=self._log, options=source.options
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Consume until `stop` is set; then finish the current batch and leave the group.

        Raises CallFailed when the client library cannot continue; a new run reads again all that
        was not committed.
        """
        member = Member(
            self._source.bootstrap,
            self._source.topic,
            self._source.group,
            log=self._log,
            options=self._source.options,
        )
        self._log.info("consumer.started")
        try:
            while not stop.is_set():
                batch = await member.poll()
                if batch:
                    await self._accept_batch(batch, member, stop)
        finally:
            await finish(self._leave(member), within=LEAVE_GRACE)
            self._log.info("consumer.stopped")

    async def _accept_batch(
        self, batch: list[Message], member: Member, stop: asyncio.Event
    ) -> None:
        """Accept a batch, with retries, until a stop or until its partitions are revoked."""
        delays = retry_delays()
        has_waited = False
        published: set[str] = set()
        while batch:
            try:
                await self._accept_or_publish(batch, published)
            except Unavailable as exc:
                if stop.is_set():
                    return  # The next owner of the partitions reads it again.
                delay = next(delays)
                self._log.warning(
                    "batch.delayed",
                    messages_count=len(batch),
                    retry_in_seconds=round(delay, 3),
                    **describe(exc),
                )
                batch = await self._wait(batch, member, stop=stop, seconds=delay)
                has_waited = True
            else:
                await member.done(batch)
                break
        if has_waited:
            await member.resume()

    async def _accept_or_publish(self, batch: Sequence[Message], published: set[str]) -> None:
        """Accept every message or copy it to the dead topic; offsets are committed after that.

        `published` has the places of what is in the dead topic, and is kept between the tries of a
        batch: a message that cannot be published now must not copy its neighbours there again.
        """
        records = [record_of(message) for message in batch]
        reasons = await self._accept(records)
        refused = {
            record.place: (message, reason)
            for message, record, reason in zip(batch, records, reasons, strict=True)
            if reason is not None
        }
        async with asyncio.TaskGroup() as group:
            tasks = {
                place: spawn(group, outcome_of(self._publish_to_dead_topic(*each)))
                for place, each in refused.items()
                if place not in published
            }
        failures = {place: task.result() for place, task in tasks.items()}
        published |= {place for place, failure in failures.items() if failure is None}
        for failure in failures.values():
            if failure is not None:
                raise failure
        self._meter.count(MESSAGES, len(batch) - len(refused), outcome="accepted")
        if refused:
            self._meter.count(MESSAGES, len(refused), outcome="refused")

    async def _publish_to_dead_topic(self, message: Message, reason: str) -> None:
        await self._dead.publish(message, reason)
        _, partition = part_of(message)
        offset = offset_of(message)
        self._log.warning("message.refused", partition=partition, offset=offset, reason=reason)

    async def _wait(
        self, batch: list[Message], member: Member, *, stop: asyncio.Event, seconds: float
    ) -> list[Message]:
        left = timedelta(seconds=seconds)
        while batch and left > timedelta(0) and not stop.is_set():
            batch = await member.wait(batch, min(STOP_CHECK_INTERVAL, left))
            left -= STOP_CHECK_INTERVAL
        return batch

    async def _leave(self, member: Member) -> None:
        """Leave the group; without the broker, the session times out."""
        try:
            async with asyncio.timeout(LEAVE_GRACE.total_seconds()):
                await member.leave()
        except (TimeoutError, Unavailable) as exc:
            self._log.warning("consumer.cut_off", **describe(exc))
        await self._dead.close()


def record_of(message: Message) -> Record:
    """Return the part of a message that `accept` gets.

    Its place includes the time of the message: a topic that is deleted and created again
    starts at offset zero.
    """
    topic, partition = part_of(message)
    name = sha256(topic.encode()).hexdigest()[:8]
    _, created_at_ms = message.timestamp()
    place = f"kafka-{name}-{partition}-{offset_of(message)}-{created_at_ms}"
    return Record(message.value(), place)
