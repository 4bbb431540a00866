"""The dead topic takes every message that can never be accepted, once, and never stops for one."""

from dataclasses import replace

import pytest

from tests.integrations.kafka.raw_producer import put_with_header
from tests.integrations.kafka.scene import Stream, Taker, consuming
from tests.kafka_broker import MockBroker, create_topic

MEGABYTE = 1024 * 1024


async def test_a_header_name_that_is_not_utf8_does_not_stop_the_partition(stream: Stream) -> None:
    """The client cannot decode it; the message must be published all the same."""
    taker = Taker(refuses={b"bad": "it is bad"})
    put_with_header(
        stream.broker.bootstrap,
        stream.topic,
        b"bad",
        partition=1,
        name=b"caf\xe9",
        header=b"1",
    )
    stream.put(b"good", partition=1)

    async with consuming(stream.source(), taker):
        await stream.until_committed(2)

    (refused,) = stream.read(stream.dead_topic, 1)
    assert refused.value() == b"bad"
    assert dict(refused.headers() or ()) == {
        "penstock-reason": b"it is bad",
        "penstock-topic": stream.topic.encode(),
        "penstock-partition": b"1",
        "penstock-offset": b"0",
        "penstock-omitted": b"headers: they cannot be decoded",
    }


@pytest.mark.parametrize("name", ["", "é", "with space", "x" * 1_000])
async def test_a_header_of_any_name_is_kept(stream: Stream, name: str) -> None:
    taker = Taker(refuses={b"bad": "it is bad"})
    stream.put(b"bad", headers=[(name, b"1"), ("empty", None)])

    async with consuming(stream.source(), taker):
        await stream.until_committed(1)

    (refused,) = stream.read(stream.dead_topic, 1)
    assert list(refused.headers() or ())[:2] == [(name, b"1"), ("empty", None)]


async def test_a_key_too_large_for_the_dead_topic_does_not_stop_the_partition(
    stream: Stream,
) -> None:
    """The first topic takes messages of 4 MiB, the dead one those of its default size."""
    if isinstance(stream.broker, MockBroker):
        pytest.skip("the mock has no limit of a message's size")
    stream = replace(stream, topic=f"large.{stream.topic}")
    create_topic(stream.broker.bootstrap, stream.topic, 2, message_bytes_max=4 * MEGABYTE)
    taker = Taker(refuses={b"bad": "it is bad", b"worse": "it is worse"})
    stream.put(b"bad", key=2 * MEGABYTE * "k", partition=1)
    stream.put(b"worse", b"good", key="k", partition=1)

    async with consuming(stream.source(), taker):
        await stream.until_committed(3)

    first, second = stream.read(stream.dead_topic, 2)
    cut, whole = sorted((first, second), key=lambda each: each.key() or b"")
    assert (cut.key(), cut.value()) == (None, b"bad")
    assert dict(cut.headers() or ()) == {
        "penstock-reason": b"it is bad",
        "penstock-topic": stream.topic.encode(),
        "penstock-partition": b"1",
        "penstock-offset": b"0",
        "penstock-omitted": b"key, headers: is larger than the broker accepts",
    }
    assert (whole.key(), whole.value()) == (b"k", b"worse")
    assert "penstock-omitted" not in dict(whole.headers() or ())


@pytest.mark.parametrize(
    ("key", "value", "header", "omitted"),
    [
        (1, 3_000, 1, b"value"),
        (3_000, 1, 1, b"key, headers"),
        (1, 1, 3_000, b"key, headers"),
        (3_000, 3_000, 1, b"key, value, headers"),
    ],
)
async def test_what_is_too_large_is_left_out_and_named(
    stream: Stream, *, key: int, value: int, header: int, omitted: bytes
) -> None:
    """Its origin says where the rest can be read."""
    taker = Taker(refuses={value * b"v": "it is bad"})
    stream.put(value * b"v", key=key * "k", headers=[("h", header * b"h")])

    async with consuming(stream.source(message_max_bytes=2_000), taker):
        await stream.until_committed(1)

    (refused,) = stream.read(stream.dead_topic, 1)
    headers = dict(refused.headers() or ())
    assert headers["penstock-reason"] == b"it is bad"
    assert headers["penstock-omitted"] == omitted + b": is larger than the broker accepts"
    assert refused.value() == (None if b"value" in omitted else value * b"v")
    assert refused.key() == (None if b"key" in omitted else key * b"k")
    assert headers.get("h") == (None if b"headers" in omitted else header * b"h")


async def test_a_batch_is_published_once_however_often_it_is_tried(stream: Stream) -> None:
    """A message that the dead topic refuses for a while must not copy its neighbours there."""
    bad = [f"bad-{number}".encode() for number in range(20)]
    taker = Taker(refuses=dict.fromkeys([*bad, b"without a key"], "it is bad"))
    wide = stream.with_dead_topic(partitions=8)
    for value in bad:
        wide.put(value, key=value.decode(), partition=0)
    wide.put(b"without a key", partition=0)
    wide.broker.refuse(wide.dead_topic)

    async with consuming(wide.source(delivery_timeout_ms=500), taker):
        await taker.until_asked(4)
        wide.broker.permit(wide.dead_topic)
        await wide.until_committed(21)

    assert wide.count(wide.dead_topic) == 21
    refused = {message.value() for message in wide.read(wide.dead_topic, 21)}
    assert refused == {*bad, b"without a key"}
