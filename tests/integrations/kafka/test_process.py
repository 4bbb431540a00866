"""`penstock kafka consume` as a process: killed, stopped, and without its database."""

import asyncio
import random
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from penstock.postgres.cluster import launch
from penstock.postgres.embedded import running
from penstock.postgres.migrate import migrate
from penstock.postgres.pool import Pool, connect, open_pool
from tests.database import MIGRATION_PACKAGES, wait_until_up
from tests.e2e.command import Command, clean_environment, penstock
from tests.e2e.test_worker import kill_and_wait
from tests.integrations.kafka.process import quick
from tests.integrations.kafka.scene import (
    Stream,
    count_events,
    nobody_accepts,
    subscribe,
    until_accepted,
    until_blocked,
)
from tests.receiver import Reply, receiving

CONSUME = ("kafka", "consume")
KEY = "cGVuc3RvY2stdGVzdHMtbmVlZC1hLWtleS1vZi0zMkI="


def at(stream: Stream, dsn: str) -> dict[str, str]:
    return stream.environment(
        PENSTOCK_DATABASE_URL=dsn,
        PENSTOCK_SECRET_KEY=KEY,
        PENSTOCK_EGRESS_ALLOW="127.0.0.0/8",
        PENSTOCK_POOL_SIZE_MIN="1",
    )


@pytest.mark.covers("B29", "B58")
async def test_events_are_accepted_and_sigterm_ends_it_well(
    dsn: str, db: Pool, *, stream: Stream, tmp_path: Path
) -> None:
    await subscribe(dsn, "http://127.0.0.1:9/")
    stream.put_events("e1", "e2", "e3")
    with penstock(*CONSUME, folder=tmp_path, environment=at(stream, dsn)) as consume:
        consume.wait_for(f"takes events from {re.escape(stream.topic)}")
        await until_accepted(db, 3)

        assert consume.stop() == 0

    assert said(consume, "consumer.started", "consumer.stopped")
    assert await count_events(db) == (3, 3)
    assert stream.committed() == 3


@pytest.mark.covers("B58")
async def test_sigterm_lets_the_batch_in_hand_finish(
    dsn: str, db: Pool, *, stream: Stream, tmp_path: Path
) -> None:
    stream.put_events("e1", "e2")
    with penstock(*CONSUME, folder=tmp_path, environment=at(stream, dsn)) as consume:
        consume.wait_for("consumer.started")
        async with nobody_accepts(db):
            await until_blocked(db)
            consume.process.terminate()
            consume.wait_for("stopping")

        assert consume.wait() == 0

    assert (await count_events(db))[0] == stream.committed() > 0


@pytest.mark.covers("B29", "B71")
async def test_a_consumer_killed_before_the_database_has_its_batch_loses_nothing(
    dsn: str, db: Pool, *, stream: Stream, tmp_path: Path
) -> None:
    await subscribe(dsn, "http://127.0.0.1:9/")
    stream.put_events(*(f"e{number}" for number in range(50)))
    with penstock(*CONSUME, folder=tmp_path, environment=at(stream, dsn)) as first:
        first.wait_for("consumer.started")
        async with nobody_accepts(db):
            await until_blocked(db)
            before = stream.committed()
            first.process.kill()
            first.wait()

    with penstock(*CONSUME, folder=tmp_path, environment=at(stream, dsn)) as second:
        await until_accepted(db, 50)
        await stream.until_committed(50)
        assert second.stop() == 0

    assert before == 0
    assert await count_events(db) == (50, 50)


@pytest.mark.covers("B29", "B71")
async def test_a_consumer_killed_before_its_offsets_are_committed_repeats_nothing(
    dsn: str, db: Pool, *, stream: Stream
) -> None:
    """The events are in the database, and the next consumer reads their messages once more."""
    await subscribe(dsn, "http://127.0.0.1:9/")
    stream.put(*(numbered(number) for number in range(50)))
    with quick("halt", environment=at(stream, dsn)) as first:
        first.wait_for(r"accepted \d+")
        accepted, _ = await count_events(db)
        before = stream.committed()
        first.process.kill()
        first.wait()

    with quick(environment=at(stream, dsn)):
        await stream.until_committed(50)

    assert accepted > 0
    assert before == 0
    assert await count_events(db) == (50, 50)


@pytest.mark.covers("B57", "B71")
async def test_consumers_that_are_killed_at_random_lose_and_repeat_nothing(
    dsn: str, db: Pool, *, stream: Stream
) -> None:
    """Each kill moves partitions in the middle of something."""
    await subscribe(dsn, "http://127.0.0.1:9/")
    chance = random.Random(7)
    sent = 0
    with quick(environment=at(stream, dsn)) as survivor:
        survivor.wait_for("partitions.assigned")
        for _ in range(4):
            with quick(environment=at(stream, dsn)) as victim:
                victim.wait_for("partitions.assigned.*partitions_count=[1-4]")
                stream.put(*(numbered(number) for number in range(sent, sent + 500)))
                sent += 500
                await until_accepted(db, sent - chance.randrange(1, 500))
                victim.process.kill()
                victim.wait()
        await until_accepted(db, sent)
        await stream.until_committed(sent)

    assert await count_events(db) == (sent, sent)


async def test_a_database_that_goes_away_and_comes_back_misses_nothing(
    stream: Stream, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with running(tmp_path_factory.mktemp("killed")) as server:
        connection = await connect(server.dsn)
        await migrate(connection, MIGRATION_PACKAGES)
        await connection.close()
        with penstock(*CONSUME, folder=tmp_path, environment=at(stream, server.dsn)) as consume:
            consume.wait_for("consumer.started")
            killed = server.pid
            assert killed is not None
            kill_and_wait(killed)
            stream.put_events("e1", "e2", "e3")
            consume.wait_for("batch.delayed")
            before = stream.committed()
            launch(server.cluster, server.options)
            await wait_until_up(server.dsn)
            await stream.until_committed(3)
            assert consume.stop() == 0
        pool = await open_pool(server.dsn, min_size=1, max_size=1)
        accepted, _ = await count_events(pool)
        await pool.close()

    assert before == 0
    assert accepted == 3
    assert not any("Traceback" in line for line in consume.lines)


@pytest.mark.covers("B15", "B18", "B58")
async def test_with_deliver_the_stop_waits_for_deliveries_after_the_consumer_has_left(
    dsn: str, db: Pool, *, stream: Stream, tmp_path: Path
) -> None:
    """First nothing new comes in, then what is under way is let finish."""
    answer = asyncio.Event()
    async with receiving(answers=[Reply(200, after=answer)]) as receiver:
        await subscribe(dsn, receiver.url)
        with penstock(
            *CONSUME, "--deliver", folder=tmp_path, environment=at(stream, dsn)
        ) as consume:
            consume.wait_for("consumer.started")
            stream.put_events("e1")
            await receiver.wait_for(1)
            consume.process.terminate()
            await asyncio.to_thread(consume.wait_for, "consumer.stopped")
            answer.set()

            assert await asyncio.to_thread(consume.wait) == 0

    state = await db.fetchval("SELECT status::text FROM penstock.events WHERE id = 'e1'")
    assert state == "delivered"
    assert stream.committed() == 1


async def test_sigterm_ends_it_although_the_brokers_are_gone(
    dsn: str, db: Pool, *, mortal_stream: Stream, tmp_path: Path
) -> None:
    """Who stops everything at once does not care what goes first."""
    environment = at(mortal_stream, dsn)
    mortal_stream.put_events("e1")
    try:
        with penstock(*CONSUME, folder=tmp_path, environment=environment) as consume:
            consume.wait_for("consumer.started")
            async with nobody_accepts(db):
                await until_blocked(db)
                mortal_stream.broker.kill()
            # The offset can be committed no more.
            await until_accepted(db, 1)
            consume.wait_for("broker.failed")

            assert consume.stop() == 0
    finally:
        mortal_stream.broker.revive()

    assert said(consume, "consumer.cut_off", "consumer.stopped")


def test_without_an_address_of_kafka_it_does_not_start(dsn: str, tmp_path: Path) -> None:
    environment = {"PENSTOCK_DATABASE_URL": dsn}
    with penstock(*CONSUME, folder=tmp_path, environment=environment) as consume:
        assert consume.wait() == 2

    assert consume.lines[-1] == "penstock: PENSTOCK_KAFKA_BOOTSTRAP: is not set"


def test_without_the_extra_it_says_what_to_install(dsn: str, tmp_path: Path) -> None:
    without = "import sys; sys.modules['confluent_kafka'] = None; from penstock.cli import main"
    environment = {"PENSTOCK_DATABASE_URL": dsn, "PENSTOCK_KAFKA_BOOTSTRAP": "127.0.0.1:1"}

    ended = subprocess.run(
        [sys.executable, "-c", f"{without}; main({[*CONSUME]!r})"],
        cwd=tmp_path,
        env=clean_environment(environment),
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 4
    assert "pip install 'penstock[kafka]'" in ended.stderr


def test_what_it_says_can_be_read_by_programs(dsn: str, stream: Stream, tmp_path: Path) -> None:
    with penstock(*CONSUME, "--json", folder=tmp_path, environment=at(stream, dsn)) as consume:
        words = consume.wait_for(r"^{.*}$").group()
        assert consume.stop() == 0

    assert msgspec.json.decode(words) == {"topic": stream.topic, "group": stream.group}


def numbered(number: int) -> bytes:
    """Return an event; every second one has no id of its own."""
    named = {"id": f"e{number}"} if number % 2 else {}
    return msgspec.json.encode({"type": "order.paid", "data": {"number": number}} | named)


def said(command: Command, *events: str) -> bool:
    return all(any(event in line for line in command.lines) for event in events)
