"""Real `kill -9` of workers and PostgreSQL in the middle of the work: no item lost or repeated."""

import os
import random
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.base.aio import alongside
from penstock.kernel.item import NewItem
from tests.fault.harness import (
    Harness,
    fill,
    running_harness,
    sweep_often,
    until_started,
    watch_balance,
)
from tests.fault.processes import ForkServer
from tests.fault.proof import (
    assert_nothing_is_done_twice,
    assert_nothing_is_lost,
    assert_order_is_kept,
    count_lost,
)
from tests.fault.waiting import until

ITEMS = int(os.environ.get("PENSTOCK_FAULT_ITEMS", "50000"))
SEED = int(os.environ.get("PENSTOCK_FAULT_SEED", "18"))
ORDER_KEYS = 500
WORKERS = 3
FAULTS = 10  # Killed workers; with two of them PostgreSQL is killed too.
DRAIN_SECONDS = 150.0
SHORT_LEASE = timedelta(seconds=1.5)  # Items of a killed worker become ready soon.


@pytest.mark.timeout(300)
@pytest.mark.covers("A37", "A98", "C34", "E27", "E28", "E45", "E46")
async def test_no_item_is_lost_or_repeated_when_workers_and_postgres_are_killed(
    forks: ForkServer, tmp_path: Path
) -> None:
    """The main promise of the product, while workers and PostgreSQL are killed at random."""
    print(f"PENSTOCK_FAULT_SEED={SEED} PENSTOCK_FAULT_ITEMS={ITEMS}")
    chance = random.Random(SEED)
    async with running_harness(tmp_path, forks, lease=SHORT_LEASE) as harness:
        await fill(harness.pool, "unordered", [_item(chance) for _ in range(ITEMS // 2)])
        order_keys = [str(chance.randrange(ORDER_KEYS)) for _ in range(ITEMS - ITEMS // 2)]
        await fill(harness.pool, "ordered", [_item(chance, order_key=key) for key in order_keys])

        async with alongside(watch_balance(harness), sweep_often(harness)):
            await _kill_at_random(harness, chance)
            await until(harness.is_drained, within=DRAIN_SECONDS)

        assert len(harness.balances) > FAULTS, "the balance was checked throughout"
        assert await count_lost(harness) > 0, "the faults hit workers with items"
        await assert_nothing_is_lost(harness, items=ITEMS)
        await assert_nothing_is_done_twice(harness)
        await assert_order_is_kept(harness)


async def _kill_at_random(harness: Harness, chance: random.Random) -> None:
    """Kill a random worker at random numbers of started items, and start another one."""
    for _ in range(WORKERS):
        await harness.start_worker()
    counts = sorted(chance.sample(range(ITEMS // 20, ITEMS * 4 // 5), FAULTS))
    with_postgres = chance.sample(counts, 2)
    for started in counts:
        await until_started(harness, started)
        if started in with_postgres:
            harness.kill_postgres()
        await harness.kill(chance.choice(harness.workers))
        await harness.start_worker()


def _item(chance: random.Random, *, order_key: str | None = None) -> NewItem:
    """Most are quick, a few are slow, and a few fail at the first attempt."""
    kind = chance.choices(["quick", "slow", "flaky"], weights=[96, 2, 2])[0]
    return NewItem(payload=kind, order_key=order_key)


@pytest.mark.timeout(180)
@pytest.mark.covers("A37")
async def test_a_worker_survives_a_crash_of_postgres(forks: ForkServer, tmp_path: Path) -> None:
    """A restart of the database must not require a restart of the workers."""
    items = ITEMS // 5
    chance = random.Random(SEED)
    async with running_harness(tmp_path, forks) as harness:
        await fill(harness.pool, "unordered", [_item(chance) for _ in range(items)])
        worker = await harness.start_worker()

        for share in (0.2, 0.6):
            await until_started(harness, int(items * share))
            assert not await harness.is_drained(), "the crash comes in the middle of the work"
            harness.kill_postgres()

        await until(harness.is_drained, within=DRAIN_SECONDS)
        assert worker.is_running, "the process is still the same"
        await assert_nothing_is_lost(harness, items=items)
        await assert_nothing_is_done_twice(harness)
        assert await harness.terminate(worker) == 0


@pytest.mark.timeout(120)
@pytest.mark.covers("B58")
async def test_sigterm_returns_items_that_have_not_started(
    forks: ForkServer, tmp_path: Path
) -> None:
    """A rollout stops every worker under load; that must cost neither an item nor an attempt."""
    items = 3_000
    async with running_harness(tmp_path, forks) as harness:
        await fill(harness.pool, "unordered", [NewItem(payload="slow") for _ in range(items)])
        worker = await harness.start_worker()
        await until_started(harness, items // 10)

        assert await harness.terminate(worker) == 0

        stopped = await harness.balance()
        assert stopped is not None
        assert (stopped.leased, stopped.done) == (0, len(harness.starts()))
        assert stopped.ready == items - stopped.done > 0

        await harness.start_worker()
        await until(harness.is_drained, within=DRAIN_SECONDS)
        await assert_nothing_is_lost(harness, items=items)
        assert len(harness.starts()) == items, "each item was started once"
