"""One member of a consumer group, in its own thread.

It commits the offsets of messages that are done, and tries again what could not be committed.
The price of a lost offset is a repeat.
"""

from collections.abc import Sequence
from datetime import timedelta
from time import monotonic

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from penstock.base.log import Logger
from penstock.integrations.kafka.client import BrokerErrors, options_of
from penstock.integrations.kafka.options import Options
from penstock.integrations.kafka.thread import OwnThread

Part = tuple[str, int]  # A topic and the number of one of its partitions.

BATCH_MAX = 500
BATCH_WAIT = timedelta(milliseconds=100)  # As long as the dispatcher that this replaces.
# How long the partitions of a killed worker wait for another; brokers refuse less than 6 s.
SESSION_TIMEOUT = timedelta(seconds=10)
# The longest time between two polls: a try that runs into its timeouts takes less than a minute.
POLL_INTERVAL_MAX = timedelta(minutes=5)
TOPIC_REFRESH = timedelta(seconds=30)  # The longest wait for a topic that is created later.


class Member:
    """Polls, commits and leaves. While it waits, it stays in the group and gets no messages."""

    def __init__(
        self, bootstrap: str, topic: str, group: str, *, log: Logger, options: Options | None = None
    ) -> None:
        self._log = log
        self._errors = BrokerErrors(log)
        self._thread = OwnThread("penstock-kafka-in")
        self._is_waiting = False
        self._batch: list[Message] = []
        # Offsets not known to be committed, and the number of commits in progress.
        self._uncommitted: dict[Part, int] = {}
        self._commits_in_progress = 0
        self._client = Consumer(
            options_of(
                bootstrap,
                self._errors,
                {
                    "group.id": group,
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "isolation.level": "read_committed",
                    # Members continue to work while partitions move.
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
        """Return the messages of the next 100 ms, often none."""
        return await self._thread.call(self._poll)

    async def done(self, batch: Sequence[Message]) -> None:
        """Commit the offsets of messages that are accepted; does not wait for the broker."""
        await self._thread.call(self._done, batch)

    async def wait(self, batch: Sequence[Message], duration: timedelta) -> list[Message]:
        """Stay in the group for `duration` without new messages; return those not revoked."""
        return await self._thread.call(self._wait, batch, duration)

    async def resume(self) -> None:
        """Get messages again, after a wait."""
        await self._thread.call(self._resume)

    async def leave(self) -> None:
        """Leave the group, with all offsets committed if the broker is available.

        If it is not, this may never return.
        """
        try:
            await self._thread.call(self._leave)
        finally:
            self._thread.end()

    # ----------------------------------------------------------- all below runs in the thread

    def _poll(self) -> list[Message]:
        self._commit_again()
        batch = self._without_errors(self._client.consume(BATCH_MAX, BATCH_WAIT.total_seconds()))
        if batch:
            self._errors.reset()
        return batch

    def _without_errors(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages; the library delivers errors as messages too."""
        batch: list[Message] = []
        for message in messages:
            error = message.error()
            if error is None:
                batch.append(message)
            elif error.fatal():
                raise KafkaException(error)
            else:
                self._errors.report(error)
        return batch

    def _done(self, batch: Sequence[Message]) -> None:
        for message in batch:
            self._uncommitted[part_of(message)] = offset_of(message) + 1
        self._commit()

    def _commit(self) -> None:
        """Commit all that is uncommitted. Sent at once; the answer comes with a later poll."""
        offsets = [TopicPartition(*part, offset) for part, offset in self._uncommitted.items()]
        self._client.commit(offsets=offsets, asynchronous=True)
        self._commits_in_progress += 1

    def _commit_again(self) -> None:
        """Commit again what no commit in progress covers."""
        if self._uncommitted and self._commits_in_progress == 0:
            self._commit()

    def _committed(self, error: KafkaError | None, offsets: Sequence[TopicPartition]) -> None:
        """Remove what is committed; the rest is tried again with the next poll."""
        self._commits_in_progress -= 1
        for each in offsets:
            failure = error or each.error
            part = (each.topic, each.partition)
            if failure is not None:
                self._errors.report(failure)
            elif self._uncommitted.get(part) == each.offset:
                del self._uncommitted[part]

    def _wait(self, batch: Sequence[Message], duration: timedelta) -> list[Message]:
        if not self._is_waiting:
            self._is_waiting = True
            self._client.pause(self._client.assignment())
        self._batch = list(batch)
        ends_at = monotonic() + duration.total_seconds()
        while (left := ends_at - monotonic()) > 0:
            # No message should arrive; one that does is next in its partition and must be kept.
            # Not `+=`: that would restore messages that are revoked during the call.
            arrived = self._without_errors(self._client.consume(1, left))
            self._batch = [*self._batch, *arrived]
        return self._batch

    def _resume(self) -> None:
        self._is_waiting = False
        self._batch = []
        self._client.resume(self._client.assignment())

    def _assigned(self, client: Consumer, parts: Sequence[TopicPartition]) -> None:
        self._log.info("partitions.assigned", partitions_count=len(parts))
        if self._is_waiting:
            client.incremental_assign(list(parts))
            client.pause(list(parts))

    def _revoke(self, _client: Consumer, parts: Sequence[TopicPartition]) -> None:
        self._log.info("partitions.revoked", partitions_count=len(parts))
        revoked = {(each.topic, each.partition) for each in parts}
        # The next owner reads them from the last committed offset on.
        self._batch = [each for each in self._batch if part_of(each) not in revoked]
        for part in revoked:
            self._uncommitted.pop(part, None)

    def _leave(self) -> None:
        self._commit_again()
        self._client.close()  # It waits for the commits in progress.


def part_of(message: Message) -> Part:
    """Return the topic and partition of a message."""
    topic, partition = message.topic(), message.partition()
    assert topic is not None, "it was read from a topic"
    assert partition is not None, "it was read from a partition"
    return topic, partition


def offset_of(message: Message) -> int:
    """Return the offset of a message."""
    offset = message.offset()
    assert offset is not None, "it was read at an offset"
    return offset


def _milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
