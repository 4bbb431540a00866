"""A pause is exact: once it has returned, nothing can be claimed. Nothing is lost by it."""

import asyncio

import pytest

from penstock import Done
from penstock.kernel.errors import UnknownLane
from penstock.kernel.inspect import balance
from penstock.kernel.lane import Lane, create_lane, pause_lane, resume_lane
from penstock.postgres.pool import Connection, Pool
from tests.fault.waiting import is_blocked, until
from tests.kernel.scene import NOON, PATIENCE, end, ids, put, state_of, take, try_claim


@pytest.mark.covers("A18", "A74")
async def test_a_paused_lane_keeps_its_items_ready(db: Connection, lane: Lane) -> None:
    item_id = await put(db, lane)

    await pause_lane(db, lane.name, who="ops")

    assert ids(await try_claim(db, lane)) == []
    assert (await balance(db)).ready == 1
    await resume_lane(db, lane.name, who="ops")
    assert ids(await try_claim(db, lane)) == [item_id]


async def test_a_paused_lane_still_accepts(db: Connection, lane: Lane) -> None:
    await pause_lane(db, lane.name, who="ops")

    item_id = await put(db, lane, due_at=NOON)

    assert await state_of(db, item_id) == "scheduled"


async def test_a_pause_waits_for_the_claim_under_way(
    pool: Pool, db: Connection, lane: Lane
) -> None:
    """After a pause an operator reads which items have left; that must not change any more."""
    first = await put(db, lane)
    second = await put(db, lane)
    transaction = db.transaction()
    await transaction.start()
    claimed = await try_claim(db, lane, limit=1)

    async with pool.acquire() as operator, asyncio.timeout(PATIENCE):
        pausing = asyncio.ensure_future(pause_lane(operator, lane.name, who="ops"))
        await until(lambda: is_blocked(pool), within=PATIENCE)
        assert not pausing.done()
        await transaction.commit()
        await pausing

    assert ids(claimed) == [first]
    assert ids(await try_claim(db, lane)) == []
    assert await state_of(db, second) == "scheduled"


async def test_a_claim_that_waits_for_a_pause_takes_nothing(
    pool: Pool, db: Connection, lane: Lane
) -> None:
    """It began before the pause was committed, and must not go by what it read then."""
    await put(db, lane)
    transaction = db.transaction()
    await transaction.start()
    await pause_lane(db, lane.name, who="ops")

    async with pool.acquire() as worker, asyncio.timeout(PATIENCE):
        claiming = asyncio.ensure_future(try_claim(worker, lane))
        await until(lambda: is_blocked(pool), within=PATIENCE)
        await transaction.commit()
        found = await claiming

    assert ids(found) == []


async def test_a_pause_of_one_lane_leaves_the_others_alone(db: Connection, lane: Lane) -> None:
    other = await create_lane(db, "other", who="test")
    item_id = await put(db, other)

    await pause_lane(db, lane.name, who="ops")

    assert ids(await try_claim(db, other)) == [item_id]


async def test_items_claimed_before_a_pause_can_be_settled(db: Connection, lane: Lane) -> None:
    await put(db, lane)
    lease = await take(db, lane)

    await pause_lane(db, lane.name, who="ops")

    assert await end(db, lane, lease, Done())


async def test_pausing_twice_is_harmless_and_an_unknown_lane_is_named(
    db: Connection, lane: Lane
) -> None:
    await pause_lane(db, lane.name, who="ops")
    assert not (await pause_lane(db, lane.name, who="ops")).enabled

    with pytest.raises(UnknownLane, match="mial"):
        await pause_lane(db, "mial", who="ops")
