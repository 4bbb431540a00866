"""Finished items leave with the retention of their own lane; all that still matters is kept.

A day of which little is kept is dropped as a whole; from others items are deleted in batches.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import LiteralString, cast

import pytest

from penstock import Dead, Done, Hold, Retry
from penstock.base.log import get_logger
from penstock.base.meter import Meter
from penstock.kernel.enqueue import enqueue_many
from penstock.kernel.inspect import balance, read_attempts, read_item
from penstock.kernel.item import ItemId, NewItem
from penstock.kernel.lane import Lane, create_lane, set_lane
from penstock.kernel.operate import cancel, reschedule, resolve, retry
from penstock.kernel.retain import (
    TRIM_ITEMS_MAX,
    Retained,
    open_days,
    retain,
    trim_day,
    trim_retained,
)
from penstock.kernel.sweep import rescue, sweep
from penstock.postgres.pool import Connection, Pool
from tests.fault.waiting import is_blocked, until
from tests.kernel.scene import (
    DAY,
    HOUR,
    MINUTE,
    PATIENCE,
    attempt_once,
    end,
    ids,
    outcomes_of,
    put,
    state_of,
    take,
    try_claim,
)

LONG = 60 * DAY  # Twice the default retention.


@pytest.fixture
def today() -> datetime:
    """The day that the migrated database has its ids from."""
    return datetime.now(UTC)


async def finish_many(
    db: Connection, lane: Lane, count: int, *, now: datetime, prefix: str = "bulk"
) -> list[ItemId]:
    accepted = await enqueue_many(
        db, lane.name, [NewItem(payload=n, key=f"{prefix} {n}") for n in range(count)], at=now
    )
    wanted, left = sorted(each.id for each in accepted), count
    while left:
        left -= len(await attempt_once(db, lane, Done(), now=now))
    return wanted


async def apply_retention(db: Connection, *, now: datetime) -> list[str]:
    """Do what sweeps do at this instant, until nothing is left to do; return the dropped days."""
    dropped = (await retain(db, now=now)).dropped
    while await trim_day(db, now=now):
        pass
    while await trim_retained(db, now=now):
        pass
    return dropped


async def existing(db: Connection, wanted: list[ItemId]) -> list[ItemId]:
    """Return which of the items have a body."""
    rows = await db.fetch("SELECT id FROM penstock.item WHERE id = ANY ($1) ORDER BY id", wanted)
    return [row["id"] for row in rows]


async def attempts_of(db: Connection, items: list[ItemId]) -> int:
    return await db.fetchval(
        "SELECT count(*) FROM penstock.attempt WHERE item_id = ANY ($1)", items
    )


async def rows_left(db: Connection, table: str = "retained_item") -> int:
    return await db.fetchval(cast("LiteralString", f"SELECT count(*) FROM penstock.{table}"))


async def days(db: Connection) -> list[str]:
    rows = await db.fetch(
        "SELECT relname AS name FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid "
        "WHERE inhparent = 'penstock.item'::regclass ORDER BY 1"
    )
    return [row["name"].removeprefix("item_") for row in rows]


async def test_partitions_are_made_ahead_and_again_is_harmless(
    db: Connection, today: datetime
) -> None:
    later = today + 10 * DAY

    await open_days(db, now=later)
    await open_days(db, now=later)

    wanted = {(later + ahead * DAY).strftime("%Y%m%d") for ahead in range(3)}
    assert wanted <= set(await days(db))


async def test_ids_rise_and_begin_a_new_block_each_day(
    db: Connection, lane: Lane, today: datetime
) -> None:
    first = await put(db, lane)
    await open_days(db, now=today + DAY)
    second = await put(db, lane)
    await open_days(db, now=today - DAY)  # A clock that jumps back moves no ids back.
    third = await put(db, lane)

    assert first < second < third
    block = ((today + DAY).date() - datetime(1970, 1, 1, tzinfo=UTC).date()).days
    assert second >> 32 == third >> 32 == block


async def test_an_old_day_is_dropped_with_its_history(
    db: Connection, lane: Lane, today: datetime
) -> None:
    items = await finish_many(db, lane, 20, now=today)
    await open_days(db, now=today + LONG)

    dropped = (await retain(db, now=today + LONG)).dropped

    assert today.date().isoformat() in dropped
    assert [await read_item(db, each) for each in items] == [None] * 20
    assert await read_attempts(db, items[0]) == []
    assert (await balance(db)).accepted == 0
    assert (await retain(db, now=today + LONG)).dropped == []


async def test_a_day_is_kept_for_the_lanes_retention(
    db: Connection, lane: Lane, today: datetime
) -> None:
    items = await finish_many(db, lane, 20, now=today)
    await open_days(db, now=today + LONG)

    assert today.date().isoformat() not in (await retain(db, now=today + 29 * DAY)).dropped

    await set_lane(db, lane.name, who="test", retention=365 * DAY)
    assert today.date().isoformat() not in (await retain(db, now=today + LONG)).dropped
    assert await state_of(db, items[0]) == "done"


async def test_unfinished_items_are_moved_before_their_day_is_dropped(
    db: Connection, lane: Lane, today: datetime
) -> None:
    """Live, held, dead and lately ended items outlive their day, with their attempts."""
    lane = await set_lane(db, lane.name, who="test", backoff_cap=30 * DAY, backoff_base=20 * DAY)
    endings = {"held": Hold("?"), "dead": Dead("no"), "scheduled": Retry("503", after=90 * DAY)}
    special: dict[str, ItemId] = {}
    for state, ending in endings.items():
        special[state] = await put(db, lane, at=today)
        await end(db, lane, await take(db, lane, now=today), ending, now=today)
    special["leased"] = await put(db, lane, at=today)
    leased = await take(db, lane, now=today)
    recent = await put(db, lane, at=today)
    await end(db, lane, await take(db, lane, now=today), Retry("503", after=DAY), now=today)
    lately = today + LONG - DAY
    done = await take(db, lane, now=lately)
    assert ids(done) == [recent]
    await end(db, lane, done, Done(), now=lately)
    waiting = await put(db, lane, at=today, due_at=today + 100 * DAY)
    await finish_many(db, lane, 80, now=today)
    before = await balance(db)
    assert before.is_even

    await open_days(db, now=today + LONG)
    assert today.date().isoformat() in (await retain(db, now=today + LONG)).dropped

    assert {state: await state_of(db, each) for state, each in special.items()} == {
        state: state for state in special
    }
    assert (await state_of(db, recent), await state_of(db, waiting)) == ("done", "scheduled")
    assert len(await read_attempts(db, recent)) == 2
    after = await balance(db)
    assert after.is_even
    assert before.done - after.done == 80

    # And they live on: settled, replayed and claimed as if nothing had happened.
    assert await end(db, lane, leased, Done(), now=today + LONG)
    await retry(db, special["dead"], who="ops", now=today + LONG)
    assert ids(await try_claim(db, lane, now=today + LONG)) == [special["dead"]]
    assert (await balance(db)).is_even


async def test_the_finished_items_leave_a_day_that_is_mostly_alive(
    db: Connection, lane: Lane, today: datetime
) -> None:
    """Moving most of a day would cost more than it frees, so the day stays until little is left."""
    done = await finish_many(db, lane, 5, now=today)
    stuck = await put(db, lane, at=today)
    await open_days(db, now=today + LONG)

    assert today.date().isoformat() not in await apply_retention(db, now=today + LONG)

    assert await existing(db, done) == []
    assert await state_of(db, stuck) == "ready"

    assert today.date().isoformat() in await apply_retention(db, now=today + LONG + DAY)

    assert await state_of(db, stuck) == "ready"
    assert ids(await try_claim(db, lane, now=today + LONG + DAY)) == [stuck]


async def test_cancelled_items_are_dropped_with_their_day(
    db: Connection, lane: Lane, today: datetime
) -> None:
    items = [await put(db, lane, n, at=today) for n in range(15)]
    for item_id in items:
        await cancel(db, item_id, who="ops", now=today)
    await open_days(db, now=today + LONG)

    await retain(db, now=today + LONG)

    counted = await balance(db)
    assert (counted.accepted, counted.cancelled, counted.is_even) == (0, 0, True)


@pytest.fixture
async def short(db: Connection) -> Lane:
    """A lane that keeps its history for a day."""
    return await create_lane(db, "short", who="test", retention=DAY, backoff_jitter=0)


@pytest.fixture
async def long(db: Connection) -> Lane:
    """A lane that keeps its history for 90 days."""
    return await create_lane(db, "long", who="test", retention=90 * DAY, backoff_jitter=0)


# Of the first day little is kept, so it is dropped; of the second most, so it is trimmed.
each_share = pytest.mark.parametrize(
    ("short_count", "long_count"), [(60, 5), (20, 30)], ids=["dropped", "trimmed"]
)


@each_share
async def test_each_lane_keeps_its_history_for_its_own_retention(
    db: Connection, *, short: Lane, long: Lane, today: datetime, short_count: int, long_count: int
) -> None:
    """One lane with a long retention must not keep the payloads of all others."""
    short_ids = await finish_many(db, short, short_count, now=today)
    long_ids = await finish_many(db, long, long_count, now=today)
    await open_days(db, now=today + 3 * DAY)

    await apply_retention(db, now=today + 3 * DAY)

    assert await existing(db, short_ids) == []
    assert await attempts_of(db, short_ids) == 0
    assert await existing(db, long_ids) == long_ids
    assert await attempts_of(db, long_ids) == long_count
    assert (await balance(db)).is_even

    # The keys of the deleted items are still in use.
    again = await enqueue_many(db, short.name, [NewItem(payload=0, key="bulk 0")], at=today)
    assert [(each.id, each.is_new) for each in again] == [(short_ids[0], False)]


@each_share
async def test_the_longest_lane_of_a_day_leaves_in_the_end(
    db: Connection, *, short: Lane, long: Lane, today: datetime, short_count: int, long_count: int
) -> None:
    """Also if its items were moved out of their day, which no longer exists."""
    await finish_many(db, short, short_count, now=today)
    long_ids = await finish_many(db, long, long_count, now=today)
    for after in (3 * DAY, 89 * DAY):
        await open_days(db, now=today + after)
        await apply_retention(db, now=today + after)
        assert await existing(db, long_ids) == long_ids

    await open_days(db, now=today + 92 * DAY)
    await apply_retention(db, now=today + 92 * DAY)

    assert await existing(db, long_ids) == []
    assert await rows_left(db) == 0


@each_share
async def test_held_and_dead_items_outlive_their_retention_with_their_attempts(
    db: Connection, *, short: Lane, long: Lane, today: datetime, short_count: int, long_count: int
) -> None:
    """They leave a retention after their end, whatever the other lanes of the day keep."""
    held = await put(db, short, at=today)
    await attempt_once(db, short, Retry("503", after=timedelta(0)), now=today)
    await attempt_once(db, short, Hold("?"), now=today)
    dead = await put(db, short, at=today)
    await attempt_once(db, short, Dead("no"), now=today)
    await finish_many(db, short, short_count, now=today)
    await finish_many(db, long, long_count, now=today)

    for days_later in range(2, 12):
        now = today + days_later * DAY
        await open_days(db, now=now)
        await apply_retention(db, now=now)
        assert await outcomes_of(db, held) == ["retry", "hold"]
        assert await outcomes_of(db, dead) == ["dead"]
    assert (await state_of(db, held), await state_of(db, dead)) == ("held", "dead")
    ended_at = today + 11 * DAY + HOUR
    await resolve(db, held, "done", who="ops", reason="the bank has it", now=ended_at)
    await cancel(db, dead, who="ops", now=ended_at)
    await apply_retention(db, now=ended_at + DAY - MINUTE)
    assert await outcomes_of(db, held) == ["retry", "hold", "done"]
    assert await state_of(db, dead) == "cancelled"

    await apply_retention(db, now=ended_at + DAY)

    assert await existing(db, [held, dead]) == []
    assert await attempts_of(db, [held, dead]) == 0
    counted = await balance(db)
    assert (counted.done, counted.cancelled, counted.is_even) == (long_count, 0, True)


async def test_nothing_of_an_expired_item_is_left(
    db: Connection, *, short: Lane, long: Lane, today: datetime
) -> None:
    """Cancelled items, moves and late results are rows of their own."""
    rescheduled = await put(db, short, at=today)
    await reschedule(db, rescheduled, today + HOUR, who="ops")
    lost = await take(db, short, now=today + HOUR)
    await rescue(db, now=today + 2 * HOUR)
    assert not await end(db, short, lost, Done(), now=today + 2 * HOUR)
    await attempt_once(db, short, Done(), now=today + 2 * HOUR)
    await cancel(db, await put(db, short, at=today), who="ops", now=today)
    await finish_many(db, long, 1, now=today)
    assert await rows_left(db, "moved") == 1
    assert await rows_left(db, "late_result") == 1
    await open_days(db, now=today + 3 * DAY)

    await apply_retention(db, now=today + 3 * DAY)

    left = {table: await rows_left(db, table) for table in ("moved", "late_result", "cancelled")}
    assert left == {"moved": 0, "late_result": 0, "cancelled": 0}
    assert (await balance(db)).accepted == 1


async def test_a_large_day_is_trimmed_in_batches(
    pool: Pool, *, db: Connection, short: Lane, long: Lane, today: datetime
) -> None:
    """Each is a short transaction, and a sweep does one; a restart continues where it ended."""
    short_ids = await finish_many(db, short, TRIM_ITEMS_MAX, now=today)
    long_ids = await finish_many(db, long, TRIM_ITEMS_MAX // 2, now=today)
    later = today + 3 * DAY
    await sweep(pool, meter=Meter(), log=get_logger(), now=later)
    assert await existing(db, short_ids) == short_ids

    examined = list[int]()
    while not (swept := await sweep(pool, meter=Meter(), log=get_logger(), now=later)).is_idle:
        examined.append(swept.examined)

    assert examined == [TRIM_ITEMS_MAX, TRIM_ITEMS_MAX // 2]
    assert await existing(db, short_ids) == []
    assert await existing(db, long_ids) == long_ids


async def test_several_sweepers_apply_retention_once(
    pool: Pool, *, db: Connection, short: Lane, long: Lane, today: datetime
) -> None:
    """They meet at midnight, while the lanes go on."""
    await finish_many(db, short, 60, now=today)
    long_ids = await finish_many(db, long, 5, now=today)
    await open_days(db, now=today + DAY)
    more_short = await finish_many(db, short, 5, now=today + DAY, prefix="more")
    more_long = await finish_many(db, long, 5, now=today + DAY, prefix="more")
    later = today + 4 * DAY
    waiting = [await put(db, short, n, at=later) for n in range(20)]
    await open_days(db, now=later)

    async def sweep_often() -> None:
        for _ in range(5):
            await sweep(pool, meter=Meter(), log=get_logger(), now=later)

    async def run_short() -> None:
        for _ in waiting:
            await end(db, short, await take(db, short, now=later, limit=1), Done(), now=later)

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(sweep_often())
        group.create_task(run_short())
    # Each may have left a day to another one; then it is looked at next, and trimmed after that.
    for _ in range(2):
        await sweep(pool, meter=Meter(), log=get_logger(), now=later)

    assert await existing(db, long_ids + more_long) == sorted(long_ids + more_long)
    assert await existing(db, waiting) == waiting
    assert await existing(db, more_short) == []
    counted = await balance(db)
    assert (counted.accepted, counted.is_even) == (30, True)


async def test_a_shorter_retention_applies_to_what_was_kept(
    db: Connection, *, short: Lane, long: Lane, today: datetime
) -> None:
    await finish_many(db, short, 60, now=today)
    moved = await finish_many(db, long, 5, now=today)
    await open_days(db, now=today + DAY)
    trimmed = await finish_many(db, long, 5, now=today + DAY, prefix="more")
    await open_days(db, now=today + 5 * DAY)
    await apply_retention(db, now=today + 5 * DAY)
    assert await existing(db, moved + trimmed) == moved + trimmed

    await set_lane(db, long.name, who="test", retention=2 * DAY)
    await apply_retention(db, now=today + 6 * DAY)

    assert await existing(db, moved + trimmed) == []


async def test_a_hundred_years_are_kept(db: Connection, lane: Lane, today: datetime) -> None:
    """PostgreSQL counts 360 days as a year when it compares a retention with its limit."""
    kept = await finish_many(db, lane, 20, now=today)
    await set_lane(db, lane.name, who="test", retention=36_000 * DAY)
    await open_days(db, now=today + 36_000 * DAY)

    await apply_retention(db, now=today + 36_000 * DAY - HOUR)
    assert await existing(db, kept) == kept

    await apply_retention(db, now=today + 36_002 * DAY)
    assert await existing(db, kept) == []


async def test_a_day_that_still_gives_out_ids_is_kept(
    db: Connection, lane: Lane, today: datetime
) -> None:
    """While no sweeper runs, ids stay in an old day: an item accepted there is new."""
    done = await finish_many(db, lane, 20, now=today)

    assert (await retain(db, now=today + LONG)).dropped == []
    assert await existing(db, done) == done


async def test_an_item_that_is_accepted_while_its_day_is_dropped_is_kept(
    pool: Pool, *, db: Connection, lane: Lane, today: datetime
) -> None:
    """A long transaction commits it after the items of the day were counted."""
    await finish_many(db, lane, 20, now=today)
    async with pool.acquire() as producer, asyncio.TaskGroup() as group:
        transaction = producer.transaction()
        await transaction.start()
        late = await put(producer, lane, at=today)
        await open_days(db, now=today + LONG)
        dropping = group.create_task(retain(db, now=today + LONG))
        await until(lambda: is_blocked(pool), within=PATIENCE)
        await transaction.commit()

    assert dropping.result() == Retained(dropped=[], is_delayed=True)
    assert await state_of(db, late) == "ready"

    await apply_retention(db, now=today + LONG + HOUR)

    assert ids(await try_claim(db, lane, now=today + LONG)) == [late]
    assert (await balance(db)).accepted == 1


async def test_empty_days_are_dropped(db: Connection, today: datetime) -> None:
    later = today + 10 * DAY
    await open_days(db, now=later)

    await retain(db, now=later)

    ahead = [(later + ahead * DAY).strftime("%Y%m%d") for ahead in range(3)]
    assert await days(db) == [*ahead, "kept"]


async def test_the_first_sweep_of_a_day_turns_it(
    pool: Pool, *, db: Connection, lane: Lane, today: datetime
) -> None:
    tomorrow = today + timedelta(days=1)

    await sweep(pool, meter=Meter(), log=get_logger(), now=tomorrow)

    item_id = await put(db, lane)
    assert item_id >> 32 == (tomorrow.date() - datetime(1970, 1, 1, tzinfo=UTC).date()).days
    assert tomorrow.strftime("%Y%m%d") in await days(db)


async def test_a_reader_of_the_history_delays_the_day_and_not_the_sweep(
    pool: Pool, *, db: Connection, lane: Lane, today: datetime
) -> None:
    """A long report must neither be killed nor stop the rescue of items."""
    await finish_many(db, lane, 20, now=today)
    stuck = await put(db, lane, at=today)
    await take(db, lane, now=today)
    async with pool.acquire() as reader, reader.transaction():
        await reader.fetchval("SELECT count(*) FROM penstock.attempt")

        swept = await sweep(pool, meter=Meter(), log=get_logger(), now=today + LONG)

    assert swept.rescued == 1
    assert ids(await try_claim(db, lane, now=today + LONG)) == [stuck]


@pytest.mark.parametrize("has_partition", [True, False], ids=["daily", "older day"])
@pytest.mark.parametrize("way", ["dropped", "trimmed"])
async def test_rows_of_a_domain_leave_with_their_item(
    db: Connection, lane: Lane, today: datetime, *, way: str, has_partition: bool
) -> None:
    """A domain that keeps bodies of its own needs no second retention for them."""
    await db.execute(
        "CREATE TABLE penstock.letter (item_id bigint PRIMARY KEY) PARTITION BY RANGE (item_id);"
        "CREATE TABLE penstock.letter_kept PARTITION OF penstock.letter DEFAULT"
    )
    await db.fetchval("SELECT penstock.add_daily_table('letter', 'item_id')")
    if not has_partition:
        await db.execute(
            cast("LiteralString", f"DROP TABLE penstock.letter_{today.strftime('%Y%m%d')}")
        )
    kept = await put(db, lane, due_at=today + 2 * LONG)
    gone = await finish_many(db, lane, 20, now=today)
    if way == "trimmed":
        other = await create_lane(db, "other", who="test", retention=365 * DAY)
        await finish_many(db, other, 20, now=today, prefix="other")
    await db.execute("INSERT INTO penstock.letter SELECT unnest($1::bigint[])", [kept, *gone])
    await open_days(db, now=today + LONG)

    dropped = await apply_retention(db, now=today + LONG)

    assert (today.date().isoformat() in dropped) == (way == "dropped")
    rows = await db.fetch("SELECT item_id FROM penstock.letter")
    assert [row["item_id"] for row in rows] == [kept]
