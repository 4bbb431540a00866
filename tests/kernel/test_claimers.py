"""A lane may be claimed by something other than its workers, and a handler may take items early."""

import asyncio
from collections.abc import Sequence
from typing import Any

from penstock import Item
from penstock.kernel.claim import Cursor, Lease, SlotRange, claim
from penstock.kernel.enqueue import enqueue_many
from penstock.kernel.inspect import balance
from penstock.kernel.item import NewItem
from penstock.kernel.kind import Kind
from penstock.kernel.lane import Lane, set_lane
from penstock.postgres.pool import Connection, Pool
from tests.kernel.scene import HOUR, NOON, PATIENCE, ids, put, state_of, take, worker_of


async def test_a_lane_that_its_kind_may_not_claim_is_left_alone(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """Another claimer owns its items; the worker asks again, so that a change needs no restart."""
    asked, handled = 0, asyncio.Event()
    was_left: list[str] = []

    async def may_claim(on: Connection) -> bool:
        nonlocal asked
        asked += 1
        if asked < 3:
            was_left.append(await state_of(on, item_id))
            return False
        return True

    async def handle(_: Item[Any]) -> None:
        handled.set()

    item_id = await put(db, lane, at=NOON.replace(year=2020))
    kind = Kind(lane=lane.name, payload_type=object, handle=handle, may_claim=may_claim)
    stop = asyncio.Event()
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        group.create_task(worker_of(dsn, pool, kind).run(stop))
        await handled.wait()
        stop.set()

    assert was_left == ["ready", "ready"]
    assert (await balance(db)).is_even


async def test_a_handler_that_takes_items_early_gets_the_whole_claim_at_once(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """It starts them elsewhere with a delay; to wait here as well would delay them twice."""
    await set_lane(db, lane.name, who="test", jitter_window=HOUR, pre_start_buffer=HOUR)
    batches: list[int] = []
    handled = asyncio.Event()

    async def preload(_: Connection, items: Sequence[Item[int]]) -> Sequence[int]:
        return [item.payload for item in items]

    async def handle_many(items: list[Item[int]]) -> list[None]:
        batches.append(len(items))
        handled.set()
        return [None] * len(items)

    now = await db.fetchval("SELECT now()")
    await enqueue_many(
        db, lane.name, [NewItem(payload=n, due_at=now + n * HOUR / 60) for n in range(50)]
    )
    kind = Kind(
        lane=lane.name,
        payload_type=int,
        handle_many=handle_many,
        preload=preload,
        takes_early=lambda payload: isinstance(payload, int),
    )
    stop = asyncio.Event()
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        group.create_task(worker_of(dsn, pool, kind).run(stop))
        await handled.wait()
        stop.set()

    assert batches == [50]


async def test_a_claimer_that_keeps_the_interval_itself_does_not_wait_for_it(
    db: Connection, lane: Lane
) -> None:
    """Two clocks for one interval would skip every second cycle."""
    await set_lane(db, lane.name, who="test", batch_size=1, dispatch_interval=HOUR)
    await put(db, lane)
    second = await put(db, lane)
    await take(db, lane)

    waited = await claim(db, lane.lane_id, Cursor(), limit=1, worker="test", now=NOON)
    slots = SlotRange(waits_for_cycle=False)
    found = await claim(db, lane.lane_id, Cursor(), limit=1, worker="test", slots=slots, now=NOON)

    assert not isinstance(waited, Lease)
    assert ids(found) == [second]
