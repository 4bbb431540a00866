"""Messages to a topic, each awaited until the broker has it on all replicas that it waits for.

The library's own asyncio producer holds messages back for up to a second to gather batches, and
takes no headers; this one has a callback and a thread that waits for it.
"""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial

from confluent_kafka import KafkaError, Message, Producer

from penstock.base.log import Logger
from penstock.integrations.kafka.client import (
    FAILURES,
    Complaints,
    options_of,
    translate,
)
from penstock.integrations.kafka.options import Options

Headers = Sequence[tuple[str, str | bytes | None]]

# The election of a new leader takes two or three seconds; a caller waits no longer than this.
PUBLISH_TIMEOUT = timedelta(seconds=5)
GATHER = timedelta(milliseconds=2)  # Those who come together share a request; nobody notices.
POLL = timedelta(milliseconds=200)  # How long the thread outlives its producer.
MESSAGE_BYTES_MAX = 128 * 1024 * 1024  # The broker decides what is too large, not we.


class Publisher:
    """Publishes to one topic. The first message makes the connection."""

    def __init__(
        self, bootstrap: str, topic: str, *, log: Logger, options: Options | None = None
    ) -> None:
        self._topic = topic
        self._complaints = Complaints(log)
        self._options = options_of(
            bootstrap,
            self._complaints,
            {
                "acks": "all",
                "enable.idempotence": True,
                "delivery.timeout.ms": _milliseconds(PUBLISH_TIMEOUT),
                "linger.ms": _milliseconds(GATHER),
                "message.max.bytes": MESSAGE_BYTES_MAX,
                **(options or {}),
            },
        )
        self._line: _Line | None = None

    async def publish(
        self, key: bytes | None, value: bytes | None, *, headers: Headers = ()
    ) -> None:
        """Return once the broker has the message for good.

        Raises CallFailed if it did not say so in time, though it may have it nevertheless, and
        InvalidInput for a message that is too large for it.
        """
        if self._line is None:
            self._line = _Line(Producer(self._options))
        line = self._line
        answer: asyncio.Future[KafkaError | None] = asyncio.get_running_loop().create_future()
        try:
            line.producer.produce(
                self._topic,
                key=key,
                value=value,
                headers=list(headers),
                on_delivery=partial(_hand_over, answer),
            )
        except FAILURES as failure:
            raise translate(failure) from failure
        error = await answer
        if error is not None:
            if error.fatal():
                self._replace(line)
            raise translate(error)
        self._complaints.forget()

    async def close(self) -> None:
        """Wait for what is under way and close the connection."""
        line, self._line = self._line, None
        if line is not None:
            line.end()
            await asyncio.to_thread(line.join)

    def _replace(self, broken: "_Line") -> None:
        """Let the next message start anew: what the library calls fatal ends a producer."""
        if self._line is broken:
            self._line = None
            broken.end()


class _Line:
    """A producer, and the thread in which it tells what became of its messages."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self._is_ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="penstock-kafka-out", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Let the thread end once nobody waits any more; every message has its time limit."""
        self._is_ended.set()

    def join(self) -> None:
        """Return when it has ended."""
        self._thread.join((PUBLISH_TIMEOUT + 2 * POLL).total_seconds())

    def _serve(self) -> None:
        while not self._is_ended.is_set() or len(self.producer):
            self.producer.poll(POLL.total_seconds())


def _hand_over(
    answer: asyncio.Future[KafkaError | None], error: KafkaError | None, _message: Message
) -> None:
    """Give the broker's answer to the loop that waits for it, if it still does."""

    def settle() -> None:
        if not answer.done():
            answer.set_result(error)

    with suppress(RuntimeError):
        answer.get_loop().call_soon_threadsafe(settle)


def _milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
