"""Real `kill -9` of everything while webhooks are delivered to a flaky receiver: none is lost."""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Sequence
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
from tests.e2e.command import penstock
from tests.fault.scene import ROOT
from tests.fault.webhooks_plan import Event, plan_lines, wanted_at
from tests.fault.webhooks_producer import Producers, Topic
from tests.fault.webhooks_proof import (
    Evidence,
    Loss,
    assert_every_delivery_has_ended_as_it_must,
    assert_every_event_shows_how_it_ended,
    assert_every_request_was_signed,
    assert_nobody_ended_unasked,
    assert_only_what_was_in_flight_at_a_kill_is_repeated,
    assert_order_is_kept,
    gather_evidence,
)
from tests.fault.webhooks_stage import APP, KEY, TOPIC, WEIGHTS, Stage, inherited, stage
from tests.receiver import Reply, receiving

EVENTS = int(os.environ.get("PENSTOCK_FAULT_EVENTS", "6000"))
SEED = int(os.environ.get("PENSTOCK_FAULT_SEED", "18"))
PRODUCERS = 5  # The first of them puts its events into Kafka.
VOLLEYS = 16 + EVENTS // 500  # One in about a second, while the events flow.
UNDER_WAY = 5  # Deliveries at once.
DRAIN_SECONDS = 60 + EVENTS / 100


@pytest.mark.timeout(180 + EVENTS / 50)
@pytest.mark.covers("B71")
async def test_no_webhook_is_lost_and_only_what_a_kill_has_cut_short_is_repeated(
    tmp_path: Path,
) -> None:
    """What was accepted ends delivered, or dead for a reason, with everything dying at random."""
    print(f"PENSTOCK_FAULT_SEED={SEED} PENSTOCK_FAULT_EVENTS={EVENTS}")
    began_at = time()
    lines = plan_lines(SEED, events=EVENTS, lines=PRODUCERS)
    events = [event for line in lines for event in line]
    deliveries = sum(len(wanted_at(event)) for event in events)
    async with stage(tmp_path, seed=SEED) as scene:
        producers = Producers(urls=scene.api_urls, key=KEY)
        async with alongside(scene.watch_balance()):
            await _send_under_fire(scene, producers, lines)
            await scene.until_at_rest(deliveries, within=DRAIN_SECONDS)
            rest_at = time()
        await scene.stop_all()

        evidence = await gather_evidence(
            scene.pool, scene.record, seed=SEED, events=events, kills=scene.kills
        )
        print(f"{rest_at - began_at:.0f} s, at rest {rest_at - scene.kills[-1].at:.0f} s after all")
        _print_figures(scene, producers, evidence)
        assert producers.accepted == Counter(event.id for event in events)
        assert {kill.kind for kill in scene.kills} == set(chain.from_iterable(WEIGHTS))
        assert evidence.losses, "the kills hit somebody at work"
        assert_every_delivery_has_ended_as_it_must(evidence)
        assert_every_event_shows_how_it_ended(evidence)
        assert_every_request_was_signed(evidence)
        assert_only_what_was_in_flight_at_a_kill_is_repeated(evidence)
        assert_order_is_kept(evidence)
        assert_nobody_ended_unasked(scene.places)


@pytest.mark.timeout(180)
@pytest.mark.covers("B58")
@pytest.mark.parametrize(
    "command", [("worker", "--app", APP), ("up", "--port", "0")], ids=["worker", "up"]
)
async def test_sigterm_lets_deliveries_under_way_finish_and_begins_no_others(
    dsn: str, db: Pool, command: tuple[str, ...]
) -> None:
    """A rollout under load must neither lose a delivery nor make one twice."""
    answer = asyncio.Event()
    environment = inherited() | {"PENSTOCK_DATABASE_URL": dsn}
    async with (
        receiving(answers=[Reply(200, after=answer)]) as receiver,
        Penstock(dsn) as app,
        called(app, create_app(app)) as callers,
    ):
        tenant = make_tenant(callers.admin, app)
        await hurry(app, concurrency=UNDER_WAY)
        await tenant.subscribe(receiver.url)
        for _ in range(2 * UNDER_WAY):
            await tenant.send()

        with penstock(*command, folder=ROOT, environment=environment) as first:
            await asyncio.to_thread(first.wait_for, "worker.started")
            await receiver.wait_for(UNDER_WAY)
            first.process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(first.wait_for, "worker.stopping")
            await tenant.send()
            answer.set()
            assert await asyncio.to_thread(first.wait) == 0

        stopped = await balance(db)
        assert len(receiver.requests) == UNDER_WAY
        assert (stopped.done, stopped.ready, stopped.leased) == (UNDER_WAY, UNDER_WAY + 1, 0)
        assert await db.fetchval("SELECT count(*) FROM penstock.attempt") == UNDER_WAY

        with penstock(*command, folder=ROOT, environment=environment) as second:
            await asyncio.to_thread(second.wait_for, "worker.started")
            await receiver.wait_for(2 * UNDER_WAY + 1)
            assert await asyncio.to_thread(second.stop) == 0

        sent = Counter(request.headers["webhook-id"] for request in receiver.requests)
        assert set(sent.values()) == {1}
        assert (await balance(db)).done == len(sent) == 2 * UNDER_WAY + 1


async def _send_under_fire(
    scene: Stage, producers: Producers, lines: Sequence[Sequence[Event]]
) -> None:
    """Let events flow for as long as there are kills, and then hand in the rest."""
    chance = random.Random(SEED)
    each = list(WEIGHTS)
    volleys = each + chance.choices(each, weights=list(WEIGHTS.values()), k=VOLLEYS - len(each))
    chance.shuffle(volleys)
    topic = Topic(scene.broker.bootstrap, TOPIC)
    async with asyncio.TaskGroup() as group:
        for number, line in enumerate(lines):
            own = random.Random(f"{SEED} {number}")
            if number == 0:
                sending = producers.publish(line, chance=own, may_send=scene.is_over, topic=topic)
            else:
                sending = producers.post(line, chance=own, may_send=scene.is_over)
            spawn(group, sending)
        await scene.wreak_havoc(volleys, chance=chance)


def _print_figures(scene: Stage, producers: Producers, evidence: Evidence) -> None:
    """Say what happened, for whoever compares runs."""
    losses = [loss for losses in evidence.losses.values() for loss in losses]
    print(
        f"{EVENTS} events, {len(evidence.deliveries)} deliveries, "
        f"requests {sum(map(len, evidence.requests.values()))}, "
        f"repeats {sum(1 for _ in evidence.repeats())}, dead {scene.balances[-1].dead}, "
        f"lost attempts {len(losses)}, of these without the database {sum(map(_fell, losses))}"
    )
    print(
        f"on {scene.broker.name}: kills {dict(Counter(kill.kind for kill in scene.kills))}, "
        f"answers {dict(producers.statuses)}, broken {producers.broken}, "
        f"accepted unknowingly {producers.known}, "
        f"gave up while starting {sum(len(place.ends) for place in scene.places)}"
    )


def _fell(loss: Loss) -> bool:
    return any(kill.kind == "postgres" for kill in loss.kills)
