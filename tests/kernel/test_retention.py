"""A day's history is dropped as a whole; whatever still matters is moved out of it first."""

from datetime import UTC, datetime, timedelta

import pytest

from penstock import Dead, Done, Hold, Retry
from penstock.base.log import get_logger
from penstock.base.meter import Meter
from penstock.kernel.enqueue import enqueue_many
from penstock.kernel.inspect import balance, read_attempts, read_item
from penstock.kernel.item import ItemId, NewItem
from penstock.kernel.lane import Lane, create_lane, set_lane
from penstock.kernel.operate import cancel, retry
from penstock.kernel.retain import open_days, retain
from penstock.kernel.sweep import sweep
from penstock.postgres.pool import Connection, Pool
from tests.kernel.scene import DAY, end, ids, put, state_of, take, try_claim

LONG = 60 * DAY  # Twice the default retention.


@pytest.fixture
def today() -> datetime:
    """The day that the migrated database has its ids from."""
    return datetime.now(UTC)


async def finish_many(db: Connection, lane: Lane, count: int, *, now: datetime) -> list[ItemId]:
    accepted = await enqueue_many(
        db, lane.name, [NewItem(payload=n, key=f"bulk {n}") for n in range(count)], at=now
    )
    wanted = {each.id for each in accepted}
    lease = await take(db, lane, now=now)
    assert wanted <= set(ids(lease))
    await end(db, lane, lease, Done(), now=now)
    return sorted(wanted)


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

    dropped = await retain(db, now=today + LONG)

    assert today.date().isoformat() in dropped
    assert [await read_item(db, each) for each in items] == [None] * 20
    assert await read_attempts(db, items[0]) == []
    assert (await balance(db)).accepted == 0
    assert await retain(db, now=today + LONG) == []


async def test_a_day_is_kept_for_the_lanes_retention(
    db: Connection, lane: Lane, today: datetime
) -> None:
    items = await finish_many(db, lane, 20, now=today)
    await open_days(db, now=today + LONG)

    assert today.date().isoformat() not in await retain(db, now=today + 29 * DAY)

    await set_lane(db, lane.name, who="test", retention=365 * DAY)
    assert today.date().isoformat() not in await retain(db, now=today + LONG)
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
    assert today.date().isoformat() in await retain(db, now=today + LONG)

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


async def test_a_day_that_is_mostly_alive_is_left_alone(
    db: Connection, lane: Lane, today: datetime
) -> None:
    """Moving most of a day would cost more than it frees."""
    item_id = await put(db, lane, at=today)
    await finish_many(db, lane, 5, now=today)
    stuck = await put(db, lane, at=today)
    await open_days(db, now=today + LONG)

    assert today.date().isoformat() not in await retain(db, now=today + LONG)

    assert await state_of(db, item_id) == "done"
    assert await state_of(db, stuck) == "ready"


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


async def test_the_longest_retention_of_a_days_lanes_decides(
    db: Connection, lane: Lane, today: datetime
) -> None:
    patient = await create_lane(db, "patient", who="test", retention=365 * DAY)
    await finish_many(db, lane, 20, now=today)
    (kept,) = await finish_many(db, patient, 1, now=today)
    await open_days(db, now=today + LONG)

    assert today.date().isoformat() not in await retain(db, now=today + LONG)

    assert await state_of(db, kept) == "done"


async def test_empty_days_are_dropped(db: Connection, today: datetime) -> None:
    await open_days(db, now=today + 10 * DAY)

    await retain(db, now=today + 20 * DAY)

    assert await days(db) == ["kept"]


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
