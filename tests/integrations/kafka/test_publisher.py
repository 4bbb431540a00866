"""The publisher: a message counts as published when the broker has it, and not before."""

import asyncio
import inspect
import socket

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, cimpl

from penstock.base.aio import outcome_of
from penstock.base.errors import CallFailed, InvalidInput
from penstock.base.log import get_logger
from penstock.integrations.kafka.client import FAILURES, translate
from penstock.integrations.kafka.publisher import Publisher
from tests.fault.waiting import until
from tests.integrations.kafka.scene import PATIENCE, Stream


def publisher(stream: Stream, **options: int) -> Publisher:
    renamed = {name.replace("_", "."): value for name, value in options.items()}
    return Publisher(stream.broker.bootstrap, stream.topic, log=get_logger(), options=renamed)


async def test_a_message_is_there_when_it_is_published(stream: Stream) -> None:
    out = publisher(stream)

    await out.publish(b"k", b"v", headers=[("h", "1")])

    (found,) = stream.read(stream.topic, 1)
    assert (found.key(), found.value(), found.headers()) == (b"k", b"v", [("h", b"1")])
    await out.close()


async def test_messages_that_come_together_all_arrive(stream: Stream) -> None:
    out = publisher(stream)

    async with asyncio.TaskGroup() as group:
        for number in range(500):
            group.create_task(out.publish(None, str(number).encode()))

    found = {int(message.value() or b"") for message in stream.read(stream.topic, 500)}
    assert found == set(range(500))
    await out.close()


async def test_a_caller_who_leaves_does_no_harm(stream: Stream) -> None:
    """A client may hang up while its event is on the way."""
    out = publisher(stream, linger_ms=300)
    async with asyncio.TaskGroup() as group:
        leaver = group.create_task(out.publish(None, b"1"))
        stayer = group.create_task(out.publish(None, b"2"))
        await asyncio.wait({leaver}, timeout=0.01)
        leaver.cancel()

    assert stayer.exception() is None
    assert len(stream.read(stream.topic, 2)) == 2
    await out.close()


@pytest.mark.covers("B65")
async def test_a_broker_that_is_away_is_an_error_in_time(stream: Stream) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        away = f"127.0.0.1:{nobody.getsockname()[1]}"
        out = Publisher(away, stream.topic, log=get_logger(), options={"delivery.timeout.ms": 300})

        with pytest.raises(CallFailed) as failed:
            async with asyncio.timeout(PATIENCE):
                await out.publish(b"k", b"v")
        await out.close()

    assert str(failed.value) == "kafka: _MSG_TIMED_OUT"


async def test_a_broker_that_is_back_is_used_again(mortal_stream: Stream) -> None:
    out = publisher(mortal_stream, delivery_timeout_ms=2_000)
    await until_published(out)
    mortal_stream.broker.kill()
    with pytest.raises(CallFailed):
        await out.publish(None, b"lost")
    mortal_stream.broker.revive()

    await until_published(out)

    await out.close()


async def test_a_message_that_is_too_large_is_the_callers_mistake(stream: Stream) -> None:
    out = publisher(stream, message_max_bytes=2_000)

    with pytest.raises(InvalidInput, match="larger than the broker accepts"):
        await out.publish(None, 3_000 * b"x")

    await out.publish(None, b"small")
    await out.close()


async def test_a_publisher_that_is_closed_has_sent_everything(stream: Stream) -> None:
    out = publisher(stream, linger_ms=300)
    async with asyncio.TaskGroup() as group:
        group.create_task(out.publish(None, b"1"))
        await asyncio.wait({group.create_task(breathe())})
        group.create_task(out.close())

    assert len(stream.read(stream.topic, 1)) == 1


def test_every_failure_of_the_library_is_translated() -> None:
    """One that is forgotten would end a consumer with a traceback."""
    raised = {
        each
        for module in (confluent_kafka, confluent_kafka.error, cimpl)
        for _, each in inspect.getmembers(module, inspect.isclass)
        if issubclass(each, Exception)
    }

    assert raised
    for each in raised:
        assert issubclass(each, FAILURES), each
        failure = (
            each(KafkaError(KafkaError._FAIL)) if each is KafkaException else each.__new__(each)
        )
        if each in (KafkaException, BufferError) or issubclass(each, RuntimeError):
            assert isinstance(translate(failure), CallFailed)


async def until_published(out: Publisher) -> None:
    """Publish again and again; a broker that has just started takes its time."""

    async def is_published() -> bool:
        return await outcome_of(out.publish(None, b"v")) is None

    await until(is_published, within=PATIENCE)


async def breathe() -> None:
    """Let everything else have a turn."""
