"""One membership in a consumer group, in a thread of its own.

It answers for the offsets: they are committed as far as messages are said to be done, and what
could not be committed is tried again. The price of an offset that is lost is a repeat.
"""

from collections.abc import Sequence
from datetime import timedelta
from time import monotonic

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from penstock.base.log import Logger
from penstock.integrations.kafka.client import Complaints, options_of
from penstock.integrations.kafka.options import Options
from penstock.integrations.kafka.thread import OwnThread

Part = tuple[str, int]  # A topic and the number of one of its partitions.

BATCH_MAX = 500
GATHER = timedelta(milliseconds=100)  # As the dispatcher that this replaces gathers a batch.
# So long the partitions of a killed worker wait for another; brokers refuse less than six.
SESSION_TIMEOUT = timedelta(seconds=10)
# The longest between two polls: a try that runs into its time limits takes less than a minute.
POLL_INTERVAL_MAX = timedelta(minutes=5)
TOPIC_REFRESH = timedelta(seconds=30)  # Who starts before the topic is made waits no longer.


class Member:
    """Polls, commits and leaves. While it waits it stays in the group and gets nothing."""

    def __init__(
        self, bootstrap: str, topic: str, group: str, *, log: Logger, options: Options | None = None
    ) -> None:
        self._log = log
        self._complaints = Complaints(log)
        self._thread = OwnThread("penstock-kafka-in")
        self._is_waiting = False
        self._in_hand: list[Message] = []
        # What is done and not known to be committed, and how many answers are on their way.
        self._owed: dict[Part, int] = {}
        self._commits_count = 0
        self._client = Consumer(
            options_of(
                bootstrap,
                self._complaints,
                {
                    "group.id": group,
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "isolation.level": "read_committed",
                    # Nobody stops working while partitions move.
                    "partition.assignment.strategy": "cooperative-sticky",
                    "session.timeout.ms": _milliseconds(SESSION_TIMEOUT),
                    "max.poll.interval.ms": _milliseconds(POLL_INTERVAL_MAX),
                    "topic.metadata.refresh.interval.ms": _milliseconds(TOPIC_REFRESH),
                    "allow.auto.create.topics": True,
                    **(options or {}),
                },
            )
            | {"on_commit": self._committed}
        )
        self._client.subscribe(
            [topic], on_assign=self._assigned, on_revoke=self._revoke, on_lost=self._revoke
        )

    async def poll(self) -> list[Message]:
        """Return the messages of the next tenth of a second, often none."""
        return await self._thread.call(self._poll)

    async def done(self, batch: Sequence[Message]) -> None:
        """Commit the offsets of messages that need not be read again; does not wait for it."""
        await self._thread.call(self._done, batch)

    async def wait(self, batch: Sequence[Message], duration: timedelta) -> list[Message]:
        """Stay in the group for a while without new messages; return what is still ours."""
        return await self._thread.call(self._wait, batch, duration)

    async def go_on(self) -> None:
        """Ask for messages again, after a wait."""
        await self._thread.call(self._go_on)

    async def leave(self) -> None:
        """Leave the group, with all offsets committed if the broker is there.

        If it is not, this may never return.
        """
        try:
            await self._thread.call(self._leave)
        finally:
            self._thread.end()

    # ----------------------------------------------------------- all below runs in the thread

    def _poll(self) -> list[Message]:
        self._commit_again()
        batch = self._sound(self._client.consume(BATCH_MAX, GATHER.total_seconds()))
        if batch:
            self._complaints.forget()
        return batch

    def _sound(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages among what came; the others are errors in their clothes."""
        batch: list[Message] = []
        for message in messages:
            error = message.error()
            if error is None:
                batch.append(message)
            elif error.fatal():
                raise KafkaException(error)
            else:
                self._complaints.hear(error)
        return batch

    def _done(self, batch: Sequence[Message]) -> None:
        for message in batch:
            self._owed[part_of(message)] = offset_of(message) + 1
        self._commit()

    def _commit(self) -> None:
        """Commit what is owed. It is sent at once; the answer comes with a later poll."""
        offsets = [TopicPartition(*part, offset) for part, offset in self._owed.items()]
        self._client.commit(offsets=offsets, asynchronous=True)
        self._commits_count += 1

    def _commit_again(self) -> None:
        """Commit what is still owed after all answers are here."""
        if self._owed and self._commits_count == 0:
            self._commit()

    def _committed(self, error: KafkaError | None, offsets: Sequence[TopicPartition]) -> None:
        """Strike off what is committed; the rest is tried again with the next poll."""
        self._commits_count -= 1
        for each in offsets:
            failure = error or each.error
            part = (each.topic, each.partition)
            if failure is not None:
                self._complaints.hear(failure)
            elif self._owed.get(part) == each.offset:
                del self._owed[part]

    def _wait(self, batch: Sequence[Message], duration: timedelta) -> list[Message]:
        if not self._is_waiting:
            self._is_waiting = True
            self._client.pause(self._client.assignment())
        self._in_hand = list(batch)
        ends_at = monotonic() + duration.total_seconds()
        while (left := ends_at - monotonic()) > 0:
            # None should come; one that does is next in its partition, and must not be lost.
            # Not `+=`: that would bring back what is revoked in the meantime.
            came = self._sound(self._client.consume(1, left))
            self._in_hand = [*self._in_hand, *came]
        return self._in_hand

    def _go_on(self) -> None:
        self._is_waiting = False
        self._in_hand = []
        self._client.resume(self._client.assignment())

    def _assigned(self, client: Consumer, parts: Sequence[TopicPartition]) -> None:
        self._log.info("partitions.assigned", partitions_count=len(parts))
        if self._is_waiting:
            client.incremental_assign(list(parts))
            client.pause(list(parts))

    def _revoke(self, _client: Consumer, parts: Sequence[TopicPartition]) -> None:
        self._log.info("partitions.revoked", partitions_count=len(parts))
        revoked = {(each.topic, each.partition) for each in parts}
        # Whoever has them next reads them from the last committed offset on.
        self._in_hand = [each for each in self._in_hand if part_of(each) not in revoked]
        for part in revoked:
            self._owed.pop(part, None)

    def _leave(self) -> None:
        self._commit_again()
        self._client.close()  # It waits for answers.


def part_of(message: Message) -> Part:
    """Return where a message was read."""
    topic, partition = message.topic(), message.partition()
    assert topic is not None, "it was read from a topic"
    assert partition is not None, "it was read from a partition"
    return topic, partition


def offset_of(message: Message) -> int:
    """Return the message's place in its partition."""
    offset = message.offset()
    assert offset is not None, "it was read at an offset"
    return offset


def _milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
