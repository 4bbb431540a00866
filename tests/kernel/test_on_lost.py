"""What becomes of items whose worker died: tried again, or held because they may have happened."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock import Item
from penstock.base.clock import boot_seconds
from penstock.kernel.claim import Claimed
from penstock.kernel.fence import MARK_STARTED, LeaseFence
from penstock.kernel.history import with_history
from penstock.kernel.inspect import balance
from penstock.kernel.item import Done, Hold, ItemId, Retry, Snooze
from penstock.kernel.lane import Lane, create_lane, set_lane
from penstock.kernel.operate import release
from penstock.kernel.sweep import rescue
from penstock.kernel.worker import EXTEND_LEASES
from penstock.postgres.pool import Connection, Pool
from tests.kernel.scene import (
    HOUR,
    MINUTE,
    NOON,
    PATIENCE,
    SECOND,
    end,
    kind_of,
    outcomes_of,
    put,
    reason_of,
    state_of,
    take,
    worker_of,
)

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)  # Due by the real clock.
LATER = NOON + HOUR  # Every lease of these tests has expired by then.


@pytest.fixture
async def payouts(db: Connection) -> Lane:
    """A lane that holds what a dead worker may have executed."""
    return await create_lane(db, "payouts", who="test", on_lost="hold", max_attempts=1)


async def mark(db: Connection, token: int, *item_ids: ItemId) -> bool:
    """Mark items as about to start; return whether they may."""
    rows = await db.fetch(MARK_STARTED, [token] * len(item_ids), list(item_ids), NOON)
    return bool(rows)


async def test_an_item_that_started_is_held_when_its_worker_dies(
    db: Connection, payouts: Lane
) -> None:
    """The call may have been made: to repeat it would pay twice."""
    item_id = await put(db, payouts)
    lease = await take(db, payouts)
    assert await mark(db, lease.token, item_id)

    await rescue(db, now=LATER)

    assert await state_of(db, item_id) == "held"
    assert await reason_of(db, item_id) == "lost"
    assert await outcomes_of(db, item_id) == ["lost"]
    assert (await balance(db)).is_even


async def test_an_item_that_never_started_returns_by_itself(db: Connection, payouts: Lane) -> None:
    """Nobody has to look into what demonstrably did not happen."""
    started, waiting = [await put(db, payouts, number) for number in range(2)]
    lease = await take(db, payouts)
    assert await mark(db, lease.token, started)

    await rescue(db, now=LATER)

    assert await state_of(db, started) == "held"
    assert await outcomes_of(db, waiting) == []
    again = await take(db, payouts, now=LATER)
    assert [(each.id, each.attempt) for each in again.items] == [(waiting, 0)]


async def test_a_lost_item_is_held_whatever_its_deadline_says(
    db: Connection, payouts: Lane
) -> None:
    """A payment that may have happened never ends as expired."""
    item_id = await put(db, payouts, not_after=NOON + MINUTE)
    lease = await take(db, payouts)
    assert await mark(db, lease.token, item_id)

    await rescue(db, now=LATER)

    assert await state_of(db, item_id) == "held"


async def test_an_item_that_never_started_still_expires(db: Connection, payouts: Lane) -> None:
    item_id = await put(db, payouts, not_after=NOON + MINUTE)
    await take(db, payouts)

    await rescue(db, now=LATER)

    assert await state_of(db, item_id) == "dead"
    assert await reason_of(db, item_id) == "expired"


async def test_a_lease_claimed_before_the_lane_held_has_no_marks_and_is_held_whole(
    db: Connection, lane: Lane
) -> None:
    """Without marks nobody knows what started, so nothing of it may be repeated."""
    item_id = await put(db, lane)
    await take(db, lane)
    await set_lane(db, lane.name, who="test", on_lost="hold")

    await rescue(db, now=LATER)

    assert await state_of(db, item_id) == "held"


async def test_a_lease_claimed_while_the_lane_held_is_held_after_the_policy_changed(
    db: Connection, payouts: Lane
) -> None:
    item_id = await put(db, payouts)
    lease = await take(db, payouts)
    assert await mark(db, lease.token, item_id)
    await set_lane(db, payouts.name, who="test", on_lost="retry")

    await rescue(db, now=LATER)

    assert await state_of(db, item_id) == "held"


async def test_a_held_head_keeps_its_followers_waiting(db: Connection) -> None:
    """The order of a participant's payments must not depend on which worker died."""
    lane = await create_lane(db, "line", who="test", on_lost="hold", ordering="per_key")
    head, follower = [await put(db, lane, number, order_key="a") for number in range(2)]
    lease = await take(db, lane)
    assert await mark(db, lease.token, head)

    await rescue(db, now=LATER)

    assert await state_of(db, head) == "held"
    assert await state_of(db, follower) == "parked"


async def test_a_start_mark_is_refused_once_the_lease_has_expired(
    db: Connection, payouts: Lane
) -> None:
    item_id = await put(db, payouts)
    lease = await take(db, payouts)

    rows = await db.fetch(MARK_STARTED, [lease.token], [item_id], LATER)

    assert rows == []


async def test_an_expired_lease_is_not_renewed_before_the_sweeper_has_seen_it(
    db: Connection, lane: Lane
) -> None:
    """A worker that woke up late could otherwise revive a lease that others think is over."""
    await put(db, lane)
    lease = await take(db, lane)

    assert await db.fetch(EXTEND_LEASES, [lease.token], NOON + lane.lease - SECOND) != []
    assert await db.fetch(EXTEND_LEASES, [lease.token], LATER) == []


async def test_a_worker_marks_each_item_before_its_handler_runs(
    dsn: str, *, pool: Pool, db: Connection, payouts: Lane
) -> None:
    """The mark is committed first: a worker that dies in the handler leaves it behind."""
    seen: list[list[int]] = []
    stop = asyncio.Event()

    async def handle(item: Item[Any]) -> None:
        started = "SELECT started_ids FROM penstock.lease WHERE token = $1"
        seen.append(list(await pool.fetchval(started, item.token)))
        assert item.id in seen[-1]
        if len(seen) == 3:
            stop.set()

    ids = [await put(db, payouts, number, at=LONG_AGO) for number in range(3)]
    async with asyncio.timeout(PATIENCE):
        await worker_of(dsn, pool, kind_of(payouts, handle)).run(stop)

    assert [await outcomes_of(db, item_id) for item_id in ids] == [["done"]] * 3


async def test_a_batch_handler_runs_after_all_its_items_are_marked(
    dsn: str, *, pool: Pool, db: Connection, payouts: Lane
) -> None:
    marked: list[set[int]] = []
    stop = asyncio.Event()

    async def handle(items: list[Item[Any]]) -> list[Done]:
        started = "SELECT started_ids FROM penstock.lease WHERE token = $1"
        marked.append(set(await pool.fetchval(started, items[0].token)))
        assert {item.id for item in items} <= marked[-1]
        stop.set()
        return [Done() for _ in items]

    item_id = await put(db, payouts, at=LONG_AGO)
    async with asyncio.timeout(PATIENCE):
        await worker_of(dsn, pool, kind_of(payouts, handle, takes_batch=True)).run(stop)

    assert await outcomes_of(db, item_id) == ["done"]


async def take_with_history(db: Connection, lane: Lane, *, now: datetime) -> Claimed:
    """Claim the lane's only item as a worker does."""
    (claimed,) = (await with_history(db, await take(db, lane, now=now))).items
    return claimed


async def test_an_item_shows_how_its_last_attempt_ended(db: Connection, lane: Lane) -> None:
    """A handler that calls a bank asks it first what became of a lost attempt."""
    await put(db, lane)
    first = await take_with_history(db, lane, now=NOON)
    await rescue(db, now=LATER)

    second = await take_with_history(db, lane, now=LATER)

    assert first.last is None
    assert second.last is not None
    assert second.last.outcome == "lost"


async def test_a_released_item_shows_that_it_was_tried(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    item_id = await put(db, lane)
    assert await end(db, lane, await take(db, lane), Hold("no answer"))
    await release(db, item_id, who="ann", reason="the bank has no such payment")
    seen: list[Item[Any]] = []
    stop = asyncio.Event()

    async def handle(item: Item[Any]) -> None:
        seen.append(item)
        stop.set()

    async with asyncio.timeout(PATIENCE):
        await worker_of(dsn, pool, kind_of(lane, handle)).run(stop)

    (item,) = seen
    assert item.attempt == 1
    assert item.tried
    assert item.last is not None
    assert (item.last.outcome, item.last.reason) == ("hold", "no answer")
    assert item.last.token < item.token


async def test_a_snoozed_attempt_was_no_try(db: Connection, lane: Lane) -> None:
    await put(db, lane)
    assert await end(db, lane, await take(db, lane), Snooze(SECOND))

    claimed = await take_with_history(db, lane, now=NOON + MINUTE)

    assert claimed.attempt == 1
    assert claimed.last is None


async def test_a_snooze_does_not_hide_the_try_before_it(db: Connection, lane: Lane) -> None:
    await put(db, lane)
    assert await end(db, lane, await take(db, lane), Retry("refused", after=SECOND))
    lease = await take(db, lane, now=NOON + MINUTE)
    assert await end(db, lane, lease, Snooze(SECOND), now=NOON + MINUTE)

    claimed = await take_with_history(db, lane, now=LATER)

    assert claimed.last is not None
    assert claimed.last.reason == "refused"


async def test_a_handler_can_check_whether_its_lease_is_still_valid(
    dsn: str, *, pool: Pool, db: Connection, lane: Lane
) -> None:
    """A worker that was suspended must not call out after another attempt may have been made."""
    answers: list[bool] = []
    stop = asyncio.Event()

    async def handle(item: Item[Any]) -> None:
        answers.append(await item.still_mine())
        expire = "UPDATE penstock.lease SET claimed_at = '-infinity', expires_at = now()"
        await pool.execute(expire)
        answers.append(await item.still_mine())
        stop.set()

    await put(db, lane, at=LONG_AGO)
    async with asyncio.timeout(PATIENCE):
        await worker_of(dsn, pool, kind_of(lane, handle)).run(stop)

    assert answers == [True, False]


async def test_a_lease_is_not_valid_for_an_item_that_is_settled(
    pool: Pool, db: Connection, lane: Lane
) -> None:
    item_id = await put(db, lane, at=LONG_AGO)
    lease = await take(db, lane, now=None)
    fence = LeaseFence(pool)

    assert await fence.is_valid(lease.token, item_id)
    assert await end(db, lane, lease, Done(), now=None)

    assert not await fence.is_valid(lease.token, item_id)


def test_the_clock_of_leases_counts_the_time_of_a_suspension() -> None:
    """CLOCK_MONOTONIC stops with the machine; the lease in the database does not."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        pytest.skip("this system's monotonic clock counts suspensions")
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= boot_seconds() <= time.clock_gettime(time.CLOCK_BOOTTIME)
