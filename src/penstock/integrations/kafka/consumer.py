"""Messages of a topic, handed on in batches. An offset is committed once its message is taken.

Nothing is skipped: a batch that cannot be taken now is kept and tried again, and a message that
nobody can ever take goes to the dead topic, with the reason.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from typing import NamedTuple, cast

from confluent_kafka import Message

from penstock.base.aio import finish, outcome_of, pauses, spawn
from penstock.base.errors import InvalidInput, Unavailable
from penstock.base.log import Logger, describe
from penstock.base.meter import Meter
from penstock.integrations.kafka.member import Member, offset_of, part_of
from penstock.integrations.kafka.options import Options
from penstock.integrations.kafka.publisher import Headers, Publisher

LOOK = timedelta(milliseconds=100)  # How often a wait looks whether it should stop.
LEAVE_GRACE = timedelta(seconds=5)  # With the broker there it takes a few milliseconds.


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where messages come from, and where those go that nobody can take."""

    bootstrap: str
    topic: str
    group: str
    dead_topic: str
    options: Options = field(default_factory=dict[str, str | int | bool], repr=False)  # A password.


class Record(NamedTuple):
    """One message; `place` is the same, and no other's, whenever the message is read."""

    value: bytes | None
    place: str


# Takes messages, for good, and says for each why nobody ever can, or None. Raises Unavailable when
# it is worth to come back with all of them. Gets some of them again after a crash.
Accept = Callable[[Sequence[Record]], Awaitable[Sequence[str | None]]]


class Consumer:
    """Hands the messages of a topic on to `accept`, in the order of each partition."""

    def __init__(self, source: Source, accept: Accept, *, log: Logger, meter: Meter) -> None:
        self._source = source
        self._accept = accept
        self._log = log.bind(topic=source.topic, group=source.group)
        self._meter = meter
        self._dead = Publisher(
            source.bootstrap, source.dead_topic, log=self._log, options=source.options
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Take messages until `stop` is set; then finish what is in hand and leave the group.

        Raises CallFailed when the broker's client cannot go on; a new run reads again all that was
        not committed.
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
                    await self._take(batch, member, stop)
        finally:
            await finish(self._leave(member), within=LEAVE_GRACE)
            self._log.info("consumer.stopped")

    async def _take(self, batch: list[Message], member: Member, stop: asyncio.Event) -> None:
        """Take a batch, whatever it takes, unless we stop or others get it."""
        waits = pauses()
        has_waited = False
        while batch:
            try:
                await self._hand_on(batch)
            except Unavailable as away:
                if stop.is_set():
                    return  # Whoever comes next reads it again.
                pause = next(waits)
                self._log.warning(
                    "batch.delayed",
                    messages_count=len(batch),
                    retry_in_seconds=round(pause, 3),
                    **describe(away),
                )
                batch = await self._wait(batch, member, stop=stop, seconds=pause)
                has_waited = True
            else:
                await member.done(batch)
                break
        if has_waited:
            await member.go_on()

    async def _hand_on(self, batch: Sequence[Message]) -> None:
        """Have every message taken or buried; the offsets must not be committed before."""
        reasons = await self._accept([record_of(message) for message in batch])
        refused = [
            (message, reason)
            for message, reason in zip(batch, reasons, strict=True)
            if reason is not None
        ]
        async with asyncio.TaskGroup() as group:
            burials = [spawn(group, outcome_of(self._bury(*each))) for each in refused]
        for burial in burials:
            if (failure := burial.result()) is not None:
                raise failure
        self._meter.count("kafka_messages_total", len(batch) - len(refused), outcome="accepted")
        if refused:
            self._meter.count("kafka_messages_total", len(refused), outcome="refused")

    async def _bury(self, message: Message, reason: str) -> None:
        """Put a message into the dead topic as it was, with the reason and where it stood."""
        topic, partition = part_of(message)
        offset = offset_of(message)
        headers = [
            *cast("Headers", message.headers() or ()),
            ("penstock-reason", reason),
            ("penstock-topic", topic),
            ("penstock-partition", str(partition)),
            ("penstock-offset", str(offset)),
        ]
        try:
            await self._dead.publish(message.key(), message.value(), headers=headers)
        except InvalidInput:
            # Our headers may be what makes it too large. Where its value stands is in them.
            await self._dead.publish(message.key(), None, headers=headers)
        self._log.warning("message.refused", partition=partition, offset=offset, reason=reason)

    async def _wait(
        self, batch: list[Message], member: Member, *, stop: asyncio.Event, seconds: float
    ) -> list[Message]:
        left = timedelta(seconds=seconds)
        while batch and left > timedelta(0) and not stop.is_set():
            batch = await member.wait(batch, min(LOOK, left))
            left -= LOOK
        return batch

    async def _leave(self, member: Member) -> None:
        """Leave the group, or be gone: the broker notices that by itself."""
        try:
            async with asyncio.timeout(LEAVE_GRACE.total_seconds()):
                await member.leave()
        except (TimeoutError, Unavailable) as away:
            self._log.warning("consumer.cut_off", **describe(away))
        await self._dead.close()


def record_of(message: Message) -> Record:
    """Return what is handed on of a message.

    Its place names the time of the message too: a topic that is made anew starts at zero again.
    """
    topic, partition = part_of(message)
    name = sha256(topic.encode()).hexdigest()[:8]
    _, made_at_ms = message.timestamp()
    place = f"kafka-{name}-{partition}-{offset_of(message)}-{made_at_ms}"
    return Record(message.value(), place)
