"""Real `kill -9` of everything while webhooks are delivered to a flaky receiver: none is lost."""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from time import time

import pytest

from penstock import Penstock
from penstock.api import create_app
from penstock.base.aio import alongside, spawn
from penstock.kernel.inspect import balance
from penstock.postgres.pool import Pool
from tests.api.scene import called
from tests.domains.webhooks.scene import hurry, make_tenant
from tests.e2e.command import clean_environment
from tests.fault.processes import ForkServer
from tests.fault.webhooks_harness import (
    APP,
    KEY,
    TOPIC,
    WEIGHTS,
    Harness,
    inherited,
    running_harness,
)
from tests.fault.webhooks_plan import Event, paths_of, plan_streams
from tests.fault.webhooks_producer import Producers, Topic
from tests.fault.webhooks_proof import (
    Evidence,
    Loss,
    assert_every_delivery_has_ended_as_planned,
    assert_every_event_has_the_right_status,
    assert_every_request_was_signed,
    assert_no_process_ended_by_itself,
    assert_only_attempts_in_flight_at_a_kill_are_repeated,
    assert_order_is_kept,
    gather_evidence,
)
from tests.receiver import Reply, receiving

EVENTS = int(os.environ.get("PENSTOCK_FAULT_EVENTS", "4000"))
SEED = int(os.environ.get("PENSTOCK_FAULT_SEED", "18"))
PRODUCERS = 5  # The first of them publishes its events to Kafka.
KILL_GROUPS = 16 + EVENTS // 500  # About one per second, while events are sent.
CONCURRENCY = 5  # Deliveries in progress at once.
# Each delivery that is planned to fail may reopen the breaker of its endpoint, for 30 s.
DRAIN_SECONDS = 300 + EVENTS / 100


@pytest.mark.timeout(480 + EVENTS / 50)
@pytest.mark.covers("B71")
async def test_no_webhook_is_lost_and_only_attempts_interrupted_by_a_kill_are_repeated(
    forks: ForkServer, tmp_path: Path
) -> None:
    """Accepted events end delivered or dead, as planned, while processes are killed at random."""
    print(f"PENSTOCK_FAULT_SEED={SEED} PENSTOCK_FAULT_EVENTS={EVENTS}")
    began_at = time()
    streams = plan_streams(SEED, events=EVENTS, streams=PRODUCERS)
    events = [event for stream in streams for event in stream]
    deliveries = sum(len(paths_of(event)) for event in events)
    async with running_harness(tmp_path, forks, seed=SEED) as harness:
        producers = Producers(urls=harness.api_urls, key=KEY)
        async with alongside(harness.watch_balance()):
            await _send_while_killing(harness, producers, streams)
            await harness.until_drained(deliveries, within=DRAIN_SECONDS)
            drained_at = time()
        await harness.stop_all()

        evidence = await gather_evidence(
            harness.pool, harness.record, seed=SEED, events=events, kills=harness.kills
        )
        last_kill_at = harness.kills[-1].at
        print(f"{drained_at - began_at:.0f} s, {drained_at - last_kill_at:.0f} after the last kill")
        _print_figures(harness, producers, evidence)
        assert producers.accepted == Counter(event.id for event in events)
        assert {kill.kind for kill in harness.kills} == set(chain.from_iterable(WEIGHTS))
        assert evidence.losses, "the kills hit workers with items"
        assert_every_delivery_has_ended_as_planned(evidence)
        assert_every_event_has_the_right_status(evidence)
        assert_every_request_was_signed(evidence)
        assert_only_attempts_in_flight_at_a_kill_are_repeated(evidence)
        assert_order_is_kept(evidence)
        assert_no_process_ended_by_itself(harness.processes)


@pytest.mark.timeout(180)
@pytest.mark.covers("B58")
@pytest.mark.parametrize(
    "command", [("worker", "--app", APP), ("up", "--port", "0")], ids=["worker", "up"]
)
async def test_sigterm_finishes_deliveries_in_progress_and_starts_no_others(
    dsn: str, db: Pool, *, forks: ForkServer, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """A rollout under load must neither lose a delivery nor make one twice."""
    answer = asyncio.Event()
    environment = clean_environment(inherited() | {"PENSTOCK_DATABASE_URL": dsn})
    start = partial(forks.start, "penstock.cli", *command, environment=environment)
    async with (
        receiving(answers=[Reply(200, after=answer)]) as receiver,
        Penstock(dsn) as app,
        called(app, create_app(app)) as callers,
    ):
        tenant = make_tenant(callers.admin, app)
        await hurry(app, concurrency=CONCURRENCY)
        await tenant.subscribe(receiver.url)
        for _ in range(2 * CONCURRENCY):
            await tenant.send()

        first = await start(log=tmp_path / "first.log")
        await first.until_logged("worker.started")
        await receiver.wait_for(CONCURRENCY)
        first.send(signal.SIGTERM)
        await first.until_logged("worker.stop_requested")
        await tenant.send()
        answer.set()
        assert await first.wait() == 0

        stopped = await balance(db)
        assert len(receiver.requests) == CONCURRENCY
        assert (stopped.done, stopped.ready, stopped.leased) == (CONCURRENCY, CONCURRENCY + 1, 0)
        assert await db.fetchval("SELECT count(*) FROM penstock.attempt") == CONCURRENCY

        second = await start(log=tmp_path / "second.log")
        await second.until_logged("worker.started")
        await receiver.wait_for(2 * CONCURRENCY + 1)
        second.send(signal.SIGTERM)
        assert await second.wait() == 0

        sent = Counter(request.headers["webhook-id"] for request in receiver.requests)
        assert set(sent.values()) == {1}
        assert (await balance(db)).done == len(sent) == 2 * CONCURRENCY + 1


async def _send_while_killing(
    harness: Harness, producers: Producers, streams: Sequence[Sequence[Event]]
) -> None:
    """Send events during the kills, and the rest afterwards."""
    chance = random.Random(SEED)
    kinds = list(WEIGHTS)
    groups = kinds + chance.choices(
        kinds, weights=list(WEIGHTS.values()), k=KILL_GROUPS - len(kinds)
    )
    chance.shuffle(groups)
    topic = Topic(harness.broker.bootstrap, TOPIC)
    async with asyncio.TaskGroup() as group:
        for number, stream in enumerate(streams):
            own = random.Random(f"{SEED} {number}")
            if number == 0:
                sending = producers.publish(
                    stream, chance=own, may_send=harness.has_passed, topic=topic
                )
            else:
                sending = producers.post(stream, chance=own, may_send=harness.has_passed)
            spawn(group, sending)
        await harness.kill_at_random(groups, chance=chance)


def _print_figures(harness: Harness, producers: Producers, evidence: Evidence) -> None:
    """Print figures, to compare runs."""
    losses = [loss for losses in evidence.losses.values() for loss in losses]
    print(
        f"{EVENTS} events, {len(evidence.deliveries)} deliveries, "
        f"requests {sum(map(len, evidence.requests.values()))}, "
        f"repeats {sum(1 for _ in evidence.repeats())}, dead {harness.balances[-1].dead}, "
        f"lost attempts {len(losses)}, without the database {sum(map(_had_no_database, losses))}"
    )
    print(
        f"on {harness.broker.name}: kills {dict(Counter(kill.kind for kill in harness.kills))}, "
        f"answers {dict(producers.statuses)}, broken {producers.broken}, "
        f"accepted without an answer {producers.known}, "
        f"ended by themselves {sum(len(process.ends) for process in harness.processes)}"
    )


def _had_no_database(loss: Loss) -> bool:
    return any(kill.kind == "postgres" for kill in loss.kills)
