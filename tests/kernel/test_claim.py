"""A claim takes what is due, in order, once, and writes one row for all of it."""

import asyncio
from datetime import timedelta
from time import monotonic
from typing import Any, cast

import pytest

from penstock import Done
from penstock.kernel.claim import CLAIM, REWIND_INTERVAL, REWIND_SHARE, Cursor, Lease
from penstock.kernel.enqueue import enqueue_many
from penstock.kernel.inspect import balance
from penstock.kernel.item import NewItem, Retry
from penstock.kernel.lane import Lane, create_lane, set_lane
from penstock.postgres.pool import Connection, Pool
from tests.kernel.scene import (
    HOUR,
    MICROSECOND,
    MILLISECOND,
    MINUTE,
    NOON,
    SECOND,
    attempt_once,
    end,
    ids,
    put,
    state_of,
    take,
    try_claim,
)


@pytest.mark.covers("A39", "C3")
async def test_nothing_is_claimed_before_it_is_due(db: Connection, lane: Lane) -> None:
    item_id = await put(db, lane, due_at=NOON)

    assert await try_claim(db, lane, now=NOON - 500 * MICROSECOND) == pytest.approx(0.0005)

    assert ids(await try_claim(db, lane, now=NOON)) == [item_id]


@pytest.mark.covers("A92", "C8")
async def test_the_earliest_due_goes_first_and_then_the_lower_id(
    db: Connection, lane: Lane
) -> None:
    late = await put(db, lane, due_at=NOON)
    early = await put(db, lane, due_at=NOON - HOUR)
    also_late = await put(db, lane, due_at=NOON)

    lease = await take(db, lane)

    assert ids(lease) == [early, late, also_late]


@pytest.mark.covers("A92")
async def test_a_retry_is_claimed_in_the_order_of_its_new_instant(
    db: Connection, lane: Lane
) -> None:
    """A repeated item must not overtake a new item that was due earlier."""
    returning = await put(db, lane)
    await attempt_once(db, lane, Retry("later", after=MINUTE))
    fresh = await put(db, lane, due_at=NOON + SECOND)

    lease = await take(db, lane, now=NOON + HOUR)

    assert ids(lease) == [fresh, returning]


@pytest.mark.covers("C3", "C9")
async def test_a_batch_has_at_most_the_lanes_size_and_at_most_what_the_worker_wants(
    db: Connection, lane: Lane
) -> None:
    await set_lane(db, lane.name, who="test", batch_size=3)
    await enqueue_many(db, lane.name, [NewItem(payload=n) for n in range(6)], at=NOON)

    assert len((await take(db, lane)).items) == 3
    assert len((await take(db, lane, limit=2)).items) == 2
    assert len((await take(db, lane)).items) == 1


@pytest.mark.covers("A22")
async def test_an_empty_lane_yields_nothing_and_writes_nothing(db: Connection, lane: Lane) -> None:
    assert await try_claim(db, lane) is None

    assert await db.fetchval("SELECT count(*) FROM penstock.lease") == 0


@pytest.mark.covers("A21", "A8", "E28", "E29", "C5")
async def test_a_claimed_batch_is_one_lease_row_and_nothing_in_ready(
    db: Connection, lane: Lane
) -> None:
    """An item is in flight exactly while a lease holds it, and its body travels with the claim."""
    first = await put(db, lane, {"n": 1}, key="k")
    second = await put(db, lane, {"n": 2})

    lease = await take(db, lane)

    row = await db.fetchrow("SELECT * FROM penstock.lease")
    assert row is not None
    assert (row["token"], row["item_ids"], row["worker"]) == (lease.token, [first, second], "test")
    assert (row["claimed_at"], row["expires_at"]) == (NOON, NOON + lane.lease)
    assert await db.fetchval("SELECT count(*) FROM penstock.ready") == 0
    assert [claimed.payload for claimed in lease.items] == ['{"n": 1}', '{"n": 2}']
    assert await state_of(db, first) == "leased"


@pytest.mark.covers("A54", "C7", "E69")
async def test_a_claim_is_one_statement(db: Connection, lane: Lane) -> None:
    """Selecting, taking, leasing and reading the bodies cost one round trip."""
    for number in range(3):
        await put(db, lane, number)
    asked: list[str] = []

    with cast("Any", db).query_logger(lambda query: asked.append(query.query)):
        lease = await take(db, lane)

    # The driver reports a statement in a later turn of the loop.
    assert await db.fetchval("SELECT count(*) FROM penstock.lease") == 1
    assert asked == [CLAIM]
    assert len(lease.items) == 3


async def test_the_token_of_a_later_lease_is_higher(db: Connection, lane: Lane) -> None:
    await put(db, lane)
    await put(db, lane)

    first, second = await take(db, lane, limit=1), await take(db, lane, limit=1)

    assert second.token > first.token


@pytest.mark.covers("A34", "C1", "C4", "C13", "E27")
async def test_claims_at_the_same_moment_are_disjoint_and_complete(
    pool: Pool, db: Connection, lane: Lane
) -> None:
    await enqueue_many(db, lane.name, [NewItem(payload=n) for n in range(400)], at=NOON)

    async def claim_some() -> list[int]:
        mine: list[int] = []
        async with pool.acquire() as connection:
            while taken := ids(await try_claim(connection, lane, limit=30)):
                mine += taken
        return mine

    assert await db.fetchval("SHOW transaction_isolation") == "read committed"
    shares = await asyncio.gather(*(claim_some() for _ in range(4)))

    everything = [item_id for share in shares for item_id in share]
    assert len(everything) == len(set(everything)) == 400
    assert (await balance(db)).leased == 400


@pytest.mark.covers("A30", "A44", "C5", "C12")
async def test_a_claim_that_is_rolled_back_never_happened(db: Connection, lane: Lane) -> None:
    """Taking an item and writing its lease are one change."""
    item_id = await put(db, lane)
    transaction = db.transaction()
    await transaction.start()
    assert ids(await try_claim(db, lane)) == [item_id]

    await transaction.rollback()

    assert await db.fetchval("SELECT count(*) FROM penstock.lease") == 0
    assert await state_of(db, item_id) == "scheduled"
    assert ids(await try_claim(db, lane)) == [item_id]


async def test_lanes_do_not_see_each_other(db: Connection, lane: Lane) -> None:
    other = await create_lane(db, "other", who="test")
    await put(db, lane)

    assert await try_claim(db, other) is None


@pytest.mark.covers("A39", "A90")
async def test_a_buffer_brings_the_claim_forward_and_not_the_start(
    db: Connection, lane: Lane
) -> None:
    await set_lane(db, lane.name, who="test", pre_start_buffer=MINUTE)
    item_id = await put(db, lane, due_at=NOON)
    assert ids(await try_claim(db, lane, now=NOON - MINUTE - SECOND)) == []

    lease = await take(db, lane, now=NOON - MINUTE + SECOND)

    assert ids(lease) == [item_id]
    assert lease.items[0].start_in == pytest.approx(59)


@pytest.mark.covers("A93")
async def test_the_interval_is_between_batches(db: Connection, lane: Lane) -> None:
    await set_lane(db, lane.name, who="test", batch_size=1, dispatch_interval=5 * SECOND)
    await put(db, lane)
    await put(db, lane)
    await take(db, lane)

    assert await try_claim(db, lane, now=NOON + SECOND) == pytest.approx(4)

    assert len((await take(db, lane, now=NOON + 5 * SECOND)).items) == 1


@pytest.mark.covers("A93", "A73")
async def test_a_shorter_interval_holds_at_once(db: Connection, lane: Lane) -> None:
    """After an interval of a day is corrected, the lane must not wait for the rest of that day."""
    await set_lane(db, lane.name, who="test", batch_size=1, dispatch_interval=24 * HOUR)
    await put(db, lane)
    await put(db, lane)
    await take(db, lane)

    await set_lane(db, lane.name, who="test", dispatch_interval=timedelta(0))

    assert len((await take(db, lane, now=NOON + SECOND)).items) == 1


# ---------------------------------------------------------------------------------------- cursor


async def test_a_cursor_continues_where_the_last_claim_ended(db: Connection, lane: Lane) -> None:
    cursor = Cursor()
    first = await put(db, lane)
    second = await put(db, lane)

    assert ids(await try_claim(db, lane, cursor=cursor, limit=1)) == [first]
    assert not cursor.is_rewinding()

    assert ids(await try_claim(db, lane, cursor=cursor, limit=1)) == [second]
    assert cursor.position == (NOON, second)


@pytest.mark.covers("A98", "A37")
async def test_an_item_committed_late_is_found_after_a_rewind(
    pool: Pool, db: Connection, lane: Lane
) -> None:
    """`now()` is when a transaction began, so a slow producer commits behind the cursor."""
    cursor = Cursor()
    async with pool.acquire() as slow:
        transaction = slow.transaction()
        await transaction.start()
        late = await put(slow, lane, at=NOON - MINUTE)
        quick = await put(db, lane, at=NOON)
        assert ids(await try_claim(db, lane, cursor=cursor)) == [quick]
        await transaction.commit()
    assert ids(await try_claim(db, lane, cursor=cursor)) == []

    cursor.rewind()

    assert ids(await try_claim(db, lane, cursor=cursor)) == [late]


def test_a_cursor_starts_with_a_rewind_and_rewinds_again_after_a_while() -> None:
    cursor = Cursor()
    assert cursor.is_rewinding()

    began_at = cursor.rewind_at
    cursor.advance((NOON, 1), began_at=began_at, scan_seconds=0.0)

    assert cursor.start() == (NOON, 1)
    assert cursor.rewind_at > began_at


def test_slow_rewinds_are_rare() -> None:
    """With a snapshot held open, a rewind walks over everything done since; it must stay cheap."""
    cursor = Cursor()
    ended_at = monotonic()

    cursor.advance((NOON, 1), began_at=ended_at, scan_seconds=10.0)

    assert cursor.rewind_at >= ended_at + 10.0 / REWIND_SHARE


def test_a_rewind_that_waited_and_scanned_little_is_repeated_soon() -> None:
    """A claim that waits for the lane's lock scans nothing meanwhile."""
    cursor = Cursor(rewind_at=monotonic() - HOUR.total_seconds())
    began_at = cursor.rewind_at  # The answer came an hour later.

    cursor.advance((NOON, 1), began_at=began_at, scan_seconds=0.001)

    assert cursor.rewind_at <= monotonic() + REWIND_INTERVAL


async def test_a_claim_that_finds_nothing_keeps_the_cursor(db: Connection, lane: Lane) -> None:
    cursor = Cursor()
    item_id = await put(db, lane)
    await try_claim(db, lane, cursor=cursor, limit=1)

    assert await try_claim(db, lane, cursor=cursor) is None

    assert cursor.position == (NOON, item_id)


async def test_an_empty_claim_returns_the_seconds_until_an_item_is_due(
    db: Connection, lane: Lane
) -> None:
    """The worker sets a timer instead of asking again and again."""
    await put(db, lane, due_at=NOON + HOUR)

    assert await try_claim(db, lane) == pytest.approx(3600)


async def test_a_claim_of_all_due_items_returns_when_more_are_due(
    db: Connection, lane: Lane
) -> None:
    await put(db, lane)
    await put(db, lane, due_at=NOON + MINUTE)

    assert (await take(db, lane)).more_in == pytest.approx(60)


async def test_a_claim_of_all_items_returns_that_none_waits(db: Connection, lane: Lane) -> None:
    await put(db, lane)

    assert (await take(db, lane)).more_in is None


async def test_after_a_full_batch_there_may_be_more_at_once(db: Connection, lane: Lane) -> None:
    for _ in range(2):
        await put(db, lane)

    assert (await take(db, lane, limit=1)).more_in == 0


async def test_more_is_not_due_before_the_interval_is_over(db: Connection, lane: Lane) -> None:
    await set_lane(db, lane.name, who="ops", dispatch_interval=10 * SECOND)
    await put(db, lane)
    await put(db, lane, due_at=NOON + SECOND)

    assert (await take(db, lane)).more_in == pytest.approx(10)


async def test_with_a_buffer_more_is_worth_asking_for_that_much_earlier(
    db: Connection, lane: Lane
) -> None:
    await set_lane(db, lane.name, who="ops", pre_start_buffer=2 * SECOND)
    await put(db, lane, due_at=NOON + SECOND)
    await put(db, lane, due_at=NOON + MINUTE)

    assert (await take(db, lane)).more_in == pytest.approx(58)


async def test_settling_one_batch_and_claiming_the_next_share_a_transaction(
    db: Connection, lane: Lane
) -> None:
    await put(db, lane)
    second = await put(db, lane)
    first_lease = await take(db, lane, limit=1)

    async with db.transaction():
        assert await end(db, lane, first_lease, Done())
        lease = await try_claim(db, lane)

    assert isinstance(lease, Lease)
    assert ids(lease) == [second]
    assert (await balance(db)).done == 1


async def test_an_item_committed_slightly_late_is_found_by_the_next_claim(
    db: Connection, lane: Lane
) -> None:
    """A producer's now is some milliseconds before its commit; others may be claimed meanwhile."""
    cursor = Cursor()
    await put(db, lane)
    await take_with(db, lane, cursor)
    cursor.rewind_at = float("inf")
    late = await put(db, lane, due_at=NOON - 50 * MILLISECOND)

    lease = await take_with(db, lane, cursor)

    assert [claimed.id for claimed in lease.items] == [late]


async def take_with(db: Connection, lane: Lane, cursor: Cursor) -> Lease:
    found = await try_claim(db, lane, cursor=cursor)
    assert isinstance(found, Lease)
    return found
