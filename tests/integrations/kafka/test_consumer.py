"""The consumer: batches in order, offsets after them, and nothing skipped whatever happens."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from time import monotonic

import pytest

from penstock.base.log import get_logger
from penstock.base.meter import Meter
from penstock.integrations.kafka.consumer import Record
from penstock.integrations.kafka.member import BATCH_MAX, Member
from penstock.postgres.errors import DatabaseAway
from tests.fault.waiting import until
from tests.integrations.kafka.scene import PATIENCE, Stream, Taker, consumer, consuming


def numbered(count: int, *, start: int = 0) -> list[bytes]:
    return [str(number).encode() for number in range(start, start + count)]


@pytest.mark.covers("B16")
async def test_messages_come_in_batches_and_in_order(stream: Stream) -> None:
    taker = Taker()
    stream.put(*numbered(100), partition=1)

    async with consuming(stream.source(), taker):
        await taker.until_taken(100)

    assert taker.taken == numbered(100)
    assert len(taker.batches) < 10
    assert stream.committed() == 100


@pytest.mark.covers("B16")
async def test_a_batch_is_waited_for_a_tenth_of_a_second(stream: Stream) -> None:
    """Longer would delay a single event, shorter would make batches of one."""
    member = Member(stream.broker.bootstrap, stream.topic, stream.group, log=get_logger())
    stream.put(b"first", partition=0)
    while not await member.poll():
        pass

    waits: list[float] = []
    for _ in range(5):
        began_at = monotonic()
        assert await member.poll() == []
        waits.append(monotonic() - began_at)
    stream.put(*numbered(3), partition=0)
    batch: list[bytes | None] = []
    while len(batch) < 3:  # Ends only if polls return before a batch is full.
        batch += [message.value() for message in await member.poll()]
    await member.leave()

    assert 0.09 <= min(waits) < 0.3, "a busy machine makes some of them longer, not all"
    assert batch == numbered(3)


@pytest.mark.covers("B29", "B71")
async def test_offsets_are_committed_after_the_messages_are_taken(stream: Stream) -> None:
    """An event that is lost between the two would be lost for ever."""
    gate = asyncio.Event()
    taker = Taker(before=lambda _: wait_for(gate))
    stream.put(*numbered(3))

    async with consuming(stream.source(), taker):
        await taker.asked.wait()
        before = stream.committed()
        gate.set()
        await stream.until_committed(3)

    assert before == 0
    assert sorted(taker.taken) == numbered(3)


async def test_a_new_consumer_continues_at_the_committed_offset(stream: Stream) -> None:
    first, second = Taker(), Taker()
    stream.put(*numbered(3))
    async with consuming(stream.source(), first):
        await first.until_taken(3)
    stream.put(*numbered(3, start=3))

    async with consuming(stream.source(), second):
        await second.until_taken(3)

    assert sorted(first.taken) == numbered(3)
    assert sorted(second.taken) == numbered(3, start=3)


async def test_a_message_that_nobody_can_take_goes_to_the_dead_topic(stream: Stream) -> None:
    """One bad message must neither hold up the others nor vanish."""
    meter = Meter()
    taker = Taker(refuses={b"bad": "it is bad"})
    stop = asyncio.Event()
    stream.put(b"good", b"bad", b"better", key="k", partition=2)

    async def stop_when_done() -> None:
        await stream.until_committed(3)
        stop.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(consumer(stream.source(), taker, meter=meter).run(stop))
        group.create_task(stop_when_done())

    (refused,) = stream.read(stream.dead_topic, 1)
    assert (refused.key(), refused.value()) == (b"k", b"bad")
    assert dict(refused.headers() or ()) == {
        "penstock-reason": b"it is bad",
        "penstock-topic": stream.topic.encode(),
        "penstock-partition": b"2",
        "penstock-offset": b"1",
    }
    assert meter.counters == {
        ("kafka_messages_total", (("outcome", "accepted"),)): 2,
        ("kafka_messages_total", (("outcome", "refused"),)): 1,
    }


async def test_offsets_wait_until_the_dead_topic_has_its_message(stream: Stream) -> None:
    """Else a broker that refuses it for a moment would make a message vanish."""
    taker = Taker(refuses={b"bad": "it is bad"})
    stream.put(b"bad")
    stream.broker.refuse(stream.dead_topic)

    async with consuming(stream.source(delivery_timeout_ms=500), taker):
        await taker.until_asked(2)
        before = stream.committed()
        stream.broker.permit(stream.dead_topic)
        await stream.until_committed(1)

    assert before == 0
    assert stream.read(stream.dead_topic, 1)[0].value() == b"bad"


async def test_a_message_too_large_for_the_dead_topic_leaves_its_reason_there(
    stream: Stream,
) -> None:
    """It must not stop its partition for ever; its headers say where the value stands."""
    large = 3_000 * b"x"
    taker = Taker(refuses={large: "it is too long"})
    stream.put(large, key="k", partition=1)

    async with consuming(stream.source(message_max_bytes=2_000), taker):
        await stream.until_committed(1)

    (refused,) = stream.read(stream.dead_topic, 1)
    assert (refused.key(), refused.value()) == (b"k", None)
    assert dict(refused.headers() or ())["penstock-reason"] == b"it is too long"


async def test_a_topic_that_is_made_later_is_found(stream: Stream) -> None:
    """In a deployment nobody says what starts first."""
    late = replace(stream, topic=f"late.{stream.topic}")
    taker = Taker()

    async with consuming(late.source(), taker):
        late.put(b"1")
        await taker.until_taken(1)

    assert taker.taken == [b"1"]


async def test_a_message_without_a_value_is_handed_on(stream: Stream) -> None:
    taker = Taker(refuses={b"": "is empty"})
    stream.put(None)

    async with consuming(stream.source(), taker):
        await stream.until_committed(1)

    (refused,) = stream.read(stream.dead_topic, 1)
    assert refused.value() is None


async def test_what_cannot_be_taken_now_is_kept_until_it_can(stream: Stream) -> None:
    """While the database is away, it stays in its group, and neither skips nor repeats anything."""
    away_until = monotonic() + 4
    tries: list[Sequence[Record]] = []

    async def fail(records: Sequence[Record]) -> None:
        tries.append(records)
        if monotonic() < away_until:
            raise DatabaseAway("for a while")

    taker = Taker(before=fail)
    stream.put(*numbered(20), partition=0)
    # Who does not poll for two seconds is put out of the group.
    source = stream.source(max_poll_interval_ms=2_000)

    async with consuming(source, taker):
        await taker.asked.wait()
        stream.put(*numbered(20, start=20), partition=0)
        before = stream.committed()
        await taker.until_taken(40)
        await stream.until_committed(40)

    assert before == 0
    assert len(tries) > 3
    # It keeps what it has and asks for no more, however long the topic grows meanwhile.
    assert {len(records) for records in tries[:-1]} == {20}
    assert taker.taken == numbered(40)


async def test_a_stop_while_nothing_can_be_taken_leaves_it_to_others(stream: Stream) -> None:
    async def fail(_records: Sequence[Record]) -> None:
        raise DatabaseAway("for ever")

    first, second = Taker(before=fail), Taker()
    stream.put(*numbered(5))
    async with consuming(stream.source(), first) as stop:
        await first.asked.wait()
        stop.set()

    async with consuming(stream.source(), second):
        await second.until_taken(5)

    assert first.taken == []
    assert sorted(second.taken) == numbered(5)


@pytest.mark.covers("B58")
async def test_a_stop_lets_the_batch_in_hand_finish(stream: Stream) -> None:
    gate = asyncio.Event()
    taker = Taker(before=lambda _: wait_for(gate))
    stream.put(*numbered(5), partition=0)

    async with consuming(stream.source(), taker) as stop:
        await taker.asked.wait()
        stop.set()
        gate.set()

    assert len(taker.batches) == 1
    assert stream.committed() == len(taker.taken) > 0


@pytest.mark.covers("B58")
async def test_a_stop_commits_the_last_of_many_batches_too(stream: Stream) -> None:
    """The answer for the one before may still be on its way."""
    count = 3 * BATCH_MAX
    taker = Taker()

    async def stop_at_the_last(records: Sequence[Record]) -> None:
        if len(taker.taken) + len(records) == count:
            stop.set()

    taker.before = stop_at_the_last
    stream.put(*numbered(count), partition=3)

    async with consuming(stream.source(), taker) as stop:
        await stop.wait()

    assert len(taker.taken) == count
    assert stream.committed() == count


async def test_a_failure_that_nobody_expects_ends_the_run_and_loses_nothing(
    stream: Stream,
) -> None:
    async def fail(_records: Sequence[Record]) -> None:
        raise LookupError("a bug")

    stream.put(*numbered(5))
    with pytest.raises(LookupError):
        await consumer(stream.source(), Taker(before=fail)).run(asyncio.Event())
    taker = Taker()

    async with consuming(stream.source(), taker):
        await taker.until_taken(5)

    assert sorted(taker.taken) == numbered(5)


@pytest.mark.covers("B57")
async def test_consumers_of_a_group_share_the_partitions(stream: Stream) -> None:
    one, two = Taker(), Taker()
    sent = 0
    async with consuming(stream.source(), one), consuming(stream.source(), two):

        async def both_have_some() -> bool:
            nonlocal sent
            for partition in range(4):
                stream.put(*numbered(1, start=sent), partition=partition)
                sent += 1
            return bool(one.batches and two.batches)

        await until(both_have_some, within=PATIENCE)
        await stream.until_committed(sent)

    taken = [*one.taken, *two.taken]
    assert sorted(set(taken)) == sorted(numbered(sent))


@pytest.mark.covers("B57")
async def test_partitions_that_move_while_a_batch_is_kept_are_read_by_the_other(
    stream: Stream,
) -> None:
    """The first must release what it keeps, or the second would wait for it for ever."""
    is_away = True

    async def fail(_records: Sequence[Record]) -> None:
        if is_away:
            raise DatabaseAway("only for the first")

    first, second = Taker(before=fail), Taker()
    for partition in range(4):
        stream.put(*numbered(10, start=10 * partition), partition=partition)
    async with consuming(stream.source(), first):
        await first.asked.wait()
        async with consuming(stream.source(), second):
            await second.until_taken(20)
            moved = set(second.taken)
            is_away = False
            await first.until_taken(20)
            await stream.until_committed(40)

    assert moved
    assert set(first.taken) | set(second.taken) == set(numbered(40))
    assert not set(first.taken) & moved


async def test_a_broker_that_dies_is_found_again(mortal_stream: Stream) -> None:
    taker = Taker()
    mortal_stream.put(*numbered(5))
    async with consuming(mortal_stream.source(), taker):
        await mortal_stream.until_committed(5)
        mortal_stream.broker.kill()
        mortal_stream.broker.revive()
        mortal_stream.put(*numbered(5, start=5))

        await taker.until_taken(10)
        await mortal_stream.until_committed(10)

    assert sorted(taker.taken) == numbered(10)


async def test_a_broker_that_is_gone_does_not_hold_up_the_stop(mortal_stream: Stream) -> None:
    """The library would wait for it for ever."""
    taker = Taker()
    mortal_stream.put(*numbered(5))
    try:
        async with consuming(mortal_stream.source(), taker):
            await taker.until_taken(5)
            mortal_stream.broker.kill()
    finally:
        mortal_stream.broker.revive()

    assert sorted(taker.taken) == numbered(5)


async def wait_for(event: asyncio.Event) -> None:
    await event.wait()
