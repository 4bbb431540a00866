"""Real `kill -9` of workers and PostgreSQL in the middle of the work: no item lost or repeated."""

import os
import random
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.base.aio import alongside
from penstock.kernel.item import NewItem
from tests.fault.proof import (
    assert_nothing_is_done_twice,
    assert_nothing_is_lost,
    assert_order_is_kept,
    count_lost,
)
from tests.fault.scene import Scene, fill, scene, sweep_often, until_started, watch_balance
from tests.fault.waiting import until

ITEMS = int(os.environ.get("PENSTOCK_FAULT_ITEMS", "100000"))
SEED = int(os.environ.get("PENSTOCK_FAULT_SEED", "18"))
ORDER_KEYS = 500
WORKERS = 3
FAULTS = 10  # Worker deaths; at two of them PostgreSQL dies as well.
DRAIN_SECONDS = 150.0
SHORT_LEASE = timedelta(seconds=1.5)  # What a killed worker held comes back soon.


@pytest.mark.timeout(300)
@pytest.mark.covers("A37", "A98", "C34", "E27", "E28", "E45", "E46")
async def test_no_item_is_lost_or_repeated_when_workers_and_postgres_are_killed(
    tmp_path: Path,
) -> None:
    """The promise of the whole product, with everything that can die dying at random."""
    print(f"PENSTOCK_FAULT_SEED={SEED} PENSTOCK_FAULT_ITEMS={ITEMS}")
    chance = random.Random(SEED)
    async with scene(tmp_path, lease=SHORT_LEASE) as stage:
        await fill(stage.pool, "loose", [_item(chance) for _ in range(ITEMS // 2)])
        order_keys = [str(chance.randrange(ORDER_KEYS)) for _ in range(ITEMS - ITEMS // 2)]
        await fill(stage.pool, "line", [_item(chance, order_key=key) for key in order_keys])

        async with alongside(watch_balance(stage), sweep_often(stage)):
            await _wreak_havoc(stage, chance)
            await until(stage.is_drained, within=DRAIN_SECONDS)

        assert len(stage.balances) > FAULTS, "the balance was watched all the time"
        assert await count_lost(stage) > 0, "the faults hit somebody at work"
        await assert_nothing_is_lost(stage, items=ITEMS)
        await assert_nothing_is_done_twice(stage)
        await assert_order_is_kept(stage)


async def _wreak_havoc(stage: Scene, chance: random.Random) -> None:
    """Kill a random worker each time that more items were started, and start another."""
    for _ in range(WORKERS):
        await stage.start_worker()
    instants = sorted(chance.sample(range(ITEMS // 20, ITEMS * 4 // 5), FAULTS))
    with_postgres = chance.sample(instants, 2)
    for started in instants:
        await until_started(stage, started)
        if started in with_postgres:
            stage.kill_postgres()
        await stage.kill(chance.choice(stage.workers))
        await stage.start_worker()


def _item(chance: random.Random, *, order_key: str | None = None) -> NewItem:
    """Most are quick, a few take a while, and a few fail at first."""
    kind = chance.choices(["quick", "slow", "flaky"], weights=[96, 2, 2])[0]
    return NewItem(payload=kind, order_key=order_key)


@pytest.mark.timeout(180)
@pytest.mark.covers("A37")
async def test_a_worker_outlives_a_crash_of_postgres(tmp_path: Path) -> None:
    """The database away and back again must not need anybody to restart a worker."""
    items = ITEMS // 5
    chance = random.Random(SEED)
    async with scene(tmp_path) as stage:
        await fill(stage.pool, "loose", [_item(chance) for _ in range(items)])
        worker = await stage.start_worker()

        for share in (0.2, 0.6):
            await until_started(stage, int(items * share))
            assert not await stage.is_drained(), "the crash comes in the middle of the work"
            stage.kill_postgres()

        await until(stage.is_drained, within=DRAIN_SECONDS)
        assert worker.returncode is None, "the process is still the same"
        await assert_nothing_is_lost(stage, items=items)
        await assert_nothing_is_done_twice(stage)
        assert await stage.terminate(worker) == 0


@pytest.mark.timeout(120)
@pytest.mark.covers("B58")
async def test_sigterm_gives_back_what_was_not_started(tmp_path: Path) -> None:
    """A rollout stops every worker under load; that must cost neither an item nor an attempt."""
    items = 3_000
    async with scene(tmp_path) as stage:
        await fill(stage.pool, "loose", [NewItem(payload="slow") for _ in range(items)])
        worker = await stage.start_worker()
        await until_started(stage, items // 10)

        assert await stage.terminate(worker) == 0

        stopped = await stage.balance()
        assert stopped is not None
        assert (stopped.leased, stopped.done) == (0, len(stage.starts()))
        assert stopped.ready == items - stopped.done > 0

        await stage.start_worker()
        await until(stage.is_drained, within=DRAIN_SECONDS)
        await assert_nothing_is_lost(stage, items=items)
        assert len(stage.starts()) == items, "each item was started once"
