"""Publish messages to a topic, each awaited until the broker has stored it on its replicas.

The library's own asyncio producer delays messages by up to a second to fill batches, and accepts
no headers; this one uses the callback producer and a thread that polls it.
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
    BrokerErrors,
    options_of,
    translate,
)
from penstock.integrations.kafka.options import Options

Headers = Sequence[tuple[str, str | bytes | None]]

# The election of a new leader takes two or three seconds; a caller waits at most this long.
PUBLISH_TIMEOUT = timedelta(seconds=5)
BATCH_WAIT = timedelta(milliseconds=2)  # Messages of the same moment share a request.
POLL = timedelta(milliseconds=200)  # How long the thread outlives its producer.
MESSAGE_BYTES_MAX = 128 * 1024 * 1024  # The broker decides what is too large.


class Publisher:
    """Publishes to one topic. The first message opens the connection."""

    def __init__(
        self, bootstrap: str, topic: str, *, log: Logger, options: Options | None = None
    ) -> None:
        self._topic = topic
        self._errors = BrokerErrors(log)
        self._options = options_of(
            bootstrap,
            self._errors,
            {
                "acks": "all",
                "enable.idempotence": True,
                "delivery.timeout.ms": _milliseconds(PUBLISH_TIMEOUT),
                "linger.ms": _milliseconds(BATCH_WAIT),
                "message.max.bytes": MESSAGE_BYTES_MAX,
                **(options or {}),
            },
        )
        self._running: _ProducerThread | None = None

    async def publish(
        self, key: bytes | None, value: bytes | None, *, headers: Headers = ()
    ) -> None:
        """Return once the broker has stored the message.

        Raises CallFailed if it did not confirm in time, although it may have stored the message,
        and InvalidInput for a message that is too large for it.
        """
        if self._running is None:
            self._running = _ProducerThread(Producer(self._options))
        running = self._running
        answer: asyncio.Future[KafkaError | None] = asyncio.get_running_loop().create_future()
        try:
            running.producer.produce(
                self._topic,
                key=key,
                value=value,
                headers=list(headers),
                on_delivery=partial(_report, answer),
            )
        except FAILURES as failure:
            raise translate(failure) from failure
        error = await answer
        if error is not None:
            if error.fatal():
                self._replace(running)
            raise translate(error)
        self._errors.reset()

    async def close(self) -> None:
        """Wait for messages in progress and close the connection."""
        running, self._running = self._running, None
        if running is not None:
            running.end()
            await asyncio.to_thread(running.join)

    def _replace(self, broken: "_ProducerThread") -> None:
        """Use a new producer for the next message: a fatal error ends a producer."""
        if self._running is broken:
            self._running = None
            broken.end()


class _ProducerThread:
    """A producer, and the thread that polls it for delivery reports."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self._is_ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="penstock-kafka-out", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the thread once no message is in progress; every message has a timeout."""
        self._is_ended.set()

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join((PUBLISH_TIMEOUT + 2 * POLL).total_seconds())

    def _serve(self) -> None:
        while not self._is_ended.is_set() or len(self.producer):
            self.producer.poll(POLL.total_seconds())


def _report(
    answer: asyncio.Future[KafkaError | None], error: KafkaError | None, _message: Message
) -> None:
    """Pass the broker's answer to the event loop that awaits it, if it still runs."""

    def settle() -> None:
        if not answer.done():
            answer.set_result(error)

    with suppress(RuntimeError):
        answer.get_loop().call_soon_threadsafe(settle)


def _milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
