"""Lanes that hold what a dead worker may have executed: under real kills, and real stops."""

import os
import random
import signal
from collections import Counter
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from penstock.base.aio import alongside
from penstock.kernel.item import NewItem
from penstock.kernel.lane import create_lane
from penstock.kernel.operate import resolve
from penstock.kernel.select import Selection, count_selected, decide_page
from tests.fault.harness import (
    Harness,
    fill,
    running_harness,
    sweep_often,
    until_started,
    watch_balance,
)
from tests.fault.payout_worker import LANE
from tests.fault.processes import ForkServer
from tests.fault.record import read_lines
from tests.fault.waiting import until

SEED = int(os.environ.get("PENSTOCK_FAULT_SEED", "18"))
KILLS = int(os.environ.get("PENSTOCK_FAULT_KILLS", "6"))
ITEMS = 500 * KILLS
WORKERS = 3
CONCURRENCY = 20
LEASE = timedelta(seconds=1.5)

STOPPED_WORKERS = 3
ROUNDS = int(os.environ.get("PENSTOCK_FAULT_STOPS", "6")) // STOPPED_WORKERS
SHORT_LEASE = timedelta(seconds=1)


async def start_worker(harness: Harness, mode: str) -> None:
    """Start a worker that pays, or one that stops itself in each handler."""
    await harness.start_worker("tests.fault.payout_worker", mode, pool_size_max=4)


@pytest.mark.timeout(300)
async def test_nothing_is_paid_twice_when_workers_are_killed(
    forks: ForkServer, tmp_path: Path
) -> None:
    """What may have been paid waits for a person; what was never started is paid by itself."""
    chance = random.Random(SEED)
    async with running_harness(tmp_path, forks, lease=LEASE) as harness:
        async with harness.pool.acquire() as db:
            await create_lane(
                db, LANE, who="test", on_lost="hold", lease=LEASE, concurrency=CONCURRENCY
            )
        await fill(harness.pool, LANE, [NewItem(payload=number) for number in range(ITEMS)])

        async with alongside(watch_balance(harness), sweep_often(harness)):
            await _kill_workers(harness, chance)
            await until(partial(_is_idle, harness), within=150.0)

        await _assert_paid_once(harness)
        await _resolve_the_rest(harness)


async def _kill_workers(harness: Harness, chance: random.Random) -> None:
    for _ in range(WORKERS):
        await start_worker(harness, "pay")
    for started in sorted(chance.sample(range(ITEMS // 20, ITEMS * 4 // 5), KILLS)):
        await until_started(harness, started)
        await harness.kill(chance.choice(harness.workers))
        await start_worker(harness, "pay")


async def _is_idle(harness: Harness) -> bool:
    counted = await harness.balance()
    return counted is not None and counted.ready + counted.leased == 0


async def _assert_paid_once(harness: Harness) -> None:
    calls = Counter(int(item_id) for item_id, *_ in read_lines(harness.record))
    assert max(calls.values()) == 1, "an item was paid twice"
    assert all(tried == "False" for *_, tried in read_lines(harness.record))

    rows = await harness.pool.fetch("SELECT id, reason FROM penstock.held")
    assert {row["reason"] for row in rows} == {"lost"}
    unpaid = [row["id"] for row in rows if row["id"] not in calls]
    assert len(unpaid) <= KILLS * CONCURRENCY, "more were held than had been marked as started"
    counted = await harness.balance()
    assert counted is not None
    assert counted.done + counted.held == counted.accepted == ITEMS
    print(f"{KILLS} kills: {counted.done} done, {counted.held} held, {len(unpaid)} of them unpaid")


async def _resolve_the_rest(harness: Harness) -> None:
    """Decide about all of them at once, as after a talk with the bank."""
    selection = Selection(lane=LANE, state="held", reason="lost")
    decide = partial(resolve, outcome="done", who="ann", reason="paid, says the bank")
    async with harness.pool.acquire() as db:
        matched = await count_selected(db, selection, "resolve")
        changed, after = 0, None
        while True:
            decided = await decide_page(db, selection, decide, after=after)
            changed += decided.changed
            after = decided.last_id
            if after is None:
                break
    assert matched == changed > 0
    counted = await harness.balance()
    assert counted is not None
    assert counted.is_even
    assert (counted.held, counted.done) == (0, ITEMS)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("sweeps", [True, False], ids=["swept", "not swept"])
async def test_a_handler_that_was_stopped_for_three_leases_sees_that_its_lease_is_lost(
    forks: ForkServer, tmp_path: Path, *, sweeps: bool
) -> None:
    """It asks right before it calls the bank; another attempt may have been made meanwhile."""
    async with running_harness(tmp_path, forks) as harness:
        async with harness.pool.acquire() as db:
            await create_lane(
                db, LANE, who="test", on_lost="hold", lease=SHORT_LEASE, batch_size=1, concurrency=1
            )
        for _ in range(STOPPED_WORKERS):
            await start_worker(harness, "stop")

        sweeper = [sweep_often(harness)] if sweeps else []
        async with alongside(*sweeper):
            for number in range(1, ROUNDS + 1):
                await _stop_all_once(harness, answers=number * STOPPED_WORKERS)

        answers = [is_mine for *_, is_mine in read_lines(harness.record)]
        assert answers == ["False"] * (ROUNDS * STOPPED_WORKERS)


async def _stop_all_once(harness: Harness, *, answers: int) -> None:
    await fill(harness.pool, LANE, [NewItem(payload=number) for number in range(STOPPED_WORKERS)])
    await until(partial(_are_stopped, harness), within=60.0)
    await until(partial(_are_leases_over, harness), within=60.0)
    for worker in harness.workers:
        worker.send(signal.SIGCONT)

    async def have_answered() -> bool:
        return len(read_lines(harness.record)) >= answers

    await until(have_answered, within=60.0)


async def _are_stopped(harness: Harness) -> bool:
    return all(worker.is_stopped for worker in harness.workers)


async def _are_leases_over(harness: Harness) -> bool:
    """Whether three durations of a lease have passed since the last claim."""
    claimed = "SELECT coalesce(max(claimed_at), '-infinity') FROM penstock.lease"
    lost = "SELECT coalesce(max(claimed_at), '-infinity') FROM penstock.attempt"
    passed = f"SELECT now() - greatest(({claimed}), ({lost})) > $1"
    return bool(await harness.pool.fetchval(passed, 3 * SHORT_LEASE))
