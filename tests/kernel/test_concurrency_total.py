"""A lane's total concurrency: over all workers, decided in the claim under the lane's lock."""

import asyncio
from typing import Any, cast

import pytest

from penstock import Done, Item
from penstock.kernel.claim import Lease
from penstock.kernel.enqueue import enqueue_many
from penstock.kernel.heartbeat import report_worker
from penstock.kernel.item import NewItem
from penstock.kernel.lane import Lane, set_lane
from penstock.kernel.settle import Ended, settle
from penstock.kernel.sweep import rescue
from penstock.kernel.why import why_item, why_lane
from penstock.postgres.pool import Connection, Pool
from tests.kernel.scene import (
    HOUR,
    NOON,
    PATIENCE,
    SECOND,
    end,
    ids,
    kind_of,
    put,
    take,
    try_claim,
    worker_of,
)

NEVER = HOUR  # A poll interval that excludes the poll.


@pytest.fixture
async def narrow(db: Connection, lane: Lane) -> Lane:
    """A lane of which workers may hold three items together."""
    return await set_lane(db, lane.name, who="test", concurrency_total=3)


async def test_claims_take_no_more_than_all_workers_may_hold(db: Connection, narrow: Lane) -> None:
    items = [await put(db, narrow) for _ in range(5)]

    first = await take(db, narrow, limit=2)
    second = await take(db, narrow)
    none = await try_claim(db, narrow)

    assert (ids(first), ids(second)) == (items[:2], items[2:3])
    assert none is None, "a worker would claim again and again in vain"


async def test_a_claim_that_fills_the_lane_does_not_ask_for_another(
    db: Connection, narrow: Lane
) -> None:
    for _ in range(5):
        await put(db, narrow)

    assert (await take(db, narrow)).more_in is None


async def test_a_claim_that_leaves_places_says_when_the_next_item_is_due(
    db: Connection, narrow: Lane
) -> None:
    await put(db, narrow)
    await put(db, narrow, due_at=NOON + SECOND)

    assert (await take(db, narrow)).more_in == 1.0


async def test_a_settled_item_frees_its_place(db: Connection, narrow: Lane) -> None:
    """Also while others of its lease run."""
    *_, fourth = [await put(db, narrow) for _ in range(4)]
    lease = await take(db, narrow)
    await settle(
        db, narrow, lease, ended=[Ended(lease.items[0], Done(), 1)], closes=False, now=NOON
    )

    assert ids(await take(db, narrow)) == [fourth]


async def test_items_of_a_dead_worker_count_until_its_lease_is_swept(
    db: Connection, narrow: Lane
) -> None:
    """They may still run somewhere."""
    for _ in range(4):
        await put(db, narrow)
    await take(db, narrow)
    late = NOON + narrow.lease

    before = await try_claim(db, narrow, now=late)
    await rescue(db, now=late)
    after = await take(db, narrow, now=late)

    assert before is None
    assert len(after.items) == 3


async def test_a_claim_counts_what_was_claimed_while_it_waited_for_the_lock(
    pool: Pool, db: Connection, narrow: Lane
) -> None:
    """Its own snapshot is older than that."""
    for _ in range(5):
        await put(db, narrow)
    async with asyncio.timeout(PATIENCE), pool.acquire() as first, pool.acquire() as second:
        process_id = await second.fetchval("SELECT pg_backend_pid()")
        async with asyncio.TaskGroup() as group, first.transaction():
            taken = await take(first, narrow, limit=2)
            other = group.create_task(try_claim(second, narrow))
            await until_blocked(db, process_id)

    found = other.result()
    assert isinstance(found, Lease)
    assert (len(taken.items), len(found.items)) == (2, 1)


async def until_blocked(db: Connection, process_id: int) -> None:
    while not await db.fetchval("SELECT cardinality(pg_blocking_pids($1)) > 0", process_id):
        pass


async def test_a_rate_and_a_total_both_apply(db: Connection, lane: Lane) -> None:
    await set_lane(db, lane.name, who="test", concurrency_total=2, rate=1_000, burst=100)
    for _ in range(5):
        await put(db, lane)

    assert len((await take(db, lane)).items) == 2


class Crowd:
    """Handlers of several workers that wait until they are let out, and how many there are."""

    def __init__(self) -> None:
        self.inside = self.most = self.ended = 0
        self.full = asyncio.Event()
        self.out = asyncio.Event()

    async def __call__(self, _: Item[Any]) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        if self.inside == 3:
            self.full.set()
        await self.out.wait()
        self.inside -= 1
        self.ended += 1


async def test_workers_together_keep_the_total_and_wake_each_other(
    pool: Pool, db: Connection, *, dsn: str, narrow: Lane
) -> None:
    """Without the wake-up, a worker that found no place would wait for its poll."""
    crowd = Crowd()
    workers = [worker_of(dsn, pool, kind_of(narrow, crowd), poll_interval=NEVER) for _ in range(2)]
    await enqueue_many(db, narrow.name, [NewItem(payload=None)] * 20)

    stop = asyncio.Event()
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        for worker in workers:
            group.create_task(worker.run(stop))
        await crowd.full.wait()
        crowd.out.set()
        while crowd.ended < 20:
            await db.fetchval("SELECT 1")
        stop.set()

    assert crowd.most == 3


async def test_a_settle_notifies_other_workers_in_such_a_lane_only(
    pool: Pool, db: Connection, lane: Lane
) -> None:
    """A notification is a lock that all commits share."""
    heard: list[str] = []

    def hear(*call: object) -> None:
        heard.append(str(call[-1]))

    async with pool.acquire() as listener:
        await listener.add_listener("penstock", hear)
        await put(db, lane, due_at=NOON, at=NOON - HOUR)
        await end(db, lane, await take(db, lane), Done())
        narrow = await set_lane(db, lane.name, who="test", concurrency_total=1)
        await put(db, narrow, due_at=NOON, at=NOON - HOUR)
        await end(db, narrow, await take(db, narrow), Done())
        await db.execute("SELECT pg_notify('penstock', 'last')")
        while "last" not in heard:
            await listener.fetchval("SELECT 1")
        await cast("Any", listener).remove_listener("penstock", hear)

    assert heard == ["policy", str(lane.lane_id), "last"]


async def test_why_names_the_workers_that_hold_the_places(db: Connection, narrow: Lane) -> None:
    await report_worker(db, "host:7:ab", [narrow.name], now=NOON)
    *_, last = [await put(db, narrow) for _ in range(4)]
    await try_claim(db, narrow, limit=1, worker="host:7:ab")
    await try_claim(db, narrow, limit=2, worker="host:8:cd")

    of_item = (await why_item(db, last, now=NOON))[0]
    of_lane = (await why_lane(db, narrow.name, now=NOON))[0]

    assert of_item == of_lane
    assert of_item.code == "concurrency_total"
    assert of_item.sentence == (
        "lane mail allows 3 items at once over all workers, "
        "and its workers hold 3: host:7:ab 1, host:8:cd 2"
    )
    assert of_item.data["leased_by"] == {"host:7:ab": 1, "host:8:cd": 2}
