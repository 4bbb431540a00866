"""In an ordered lane only the head of a key can be claimed; followers overtake on request only."""

import asyncio
from datetime import UTC, datetime

import pytest

from penstock import Dead, Done, Hold, Retry, Snooze
from penstock.base.log import get_logger
from penstock.base.meter import Meter
from penstock.kernel.enqueue import enqueue_many
from penstock.kernel.errors import LaneNotEmpty
from penstock.kernel.inspect import balance, list_blocked, measure_lanes
from penstock.kernel.item import ItemId, NewItem, Returned
from penstock.kernel.kind import Kind
from penstock.kernel.lane import Lane, create_lane, set_lane
from penstock.kernel.operate import cancel, release, reschedule, retry
from penstock.kernel.promote import Promoted, promote_vacated
from penstock.kernel.sweep import expire, rescue, sweep
from penstock.postgres.pool import Connection, Pool
from tests.kernel.scene import (
    DAY,
    HOUR,
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
    worker_of,
)
from tests.kernel.test_worker import NEVER, AnyItem, Recorder, running, until, until_listening


@pytest.fixture
async def lane(db: Connection) -> Lane:
    """An ordered lane; a dead head blocks its key."""
    return await create_lane(db, "rail", who="test", ordering="per_key", backoff_jitter=0)


async def line(db: Connection, lane: Lane, count: int = 3, *, key: str = "k") -> list[ItemId]:
    return [await put(db, lane, n, order_key=key) for n in range(count)]


async def claim_ids(db: Connection, lane: Lane) -> list[ItemId]:
    """Return what can be claimed a day later, when no backoff holds anything back; keep nothing."""
    transaction = db.transaction()
    await transaction.start()
    found = ids(await try_claim(db, lane, now=NOON + DAY))
    await transaction.rollback()
    return found


@pytest.mark.covers("E70")
async def test_only_the_head_of_a_key_can_be_claimed(db: Connection, lane: Lane) -> None:
    first, second, third = await line(db, lane)

    assert ids(await try_claim(db, lane)) == [first]

    assert ids(await try_claim(db, lane)) == []
    assert [await state_of(db, each) for each in (second, third)] == ["parked", "parked"]


@pytest.mark.covers("E70")
async def test_followers_move_up_one_by_one_as_heads_are_done(db: Connection, lane: Lane) -> None:
    everything = await line(db, lane)

    order = [item_id for _ in range(3) for item_id in await attempt_once(db, lane, Done())]

    assert order == everything
    assert await db.fetchval("SELECT count(*) FROM penstock.active_key") == 0
    assert (await balance(db)).is_even


async def test_an_item_does_not_overtake_a_head_that_backs_off(db: Connection, lane: Lane) -> None:
    first, second = await line(db, lane, 2)
    await attempt_once(db, lane, Retry("503", after=HOUR))

    assert await try_claim(db, lane, now=NOON + MINUTE) == pytest.approx(3540)

    assert await attempt_once(db, lane, Done(), now=NOON + HOUR) == [first]
    assert ids(await try_claim(db, lane, now=NOON + HOUR)) == [second]


async def test_keys_do_not_wait_for_each_other(db: Connection, lane: Lane) -> None:
    first_of_a, _ = await line(db, lane, 2, key="a")
    first_of_b, _ = await line(db, lane, 2, key="b")
    unordered = await put(db, lane)

    assert ids(await try_claim(db, lane)) == [first_of_a, first_of_b, unordered]


async def test_an_earlier_due_instant_does_not_change_the_order(db: Connection, lane: Lane) -> None:
    first = await put(db, lane, order_key="k", due_at=NOON)
    await put(db, lane, order_key="k", due_at=NOON - HOUR)

    assert ids(await try_claim(db, lane)) == [first]


async def test_a_follower_waits_for_its_own_due_instant(db: Connection, lane: Lane) -> None:
    await put(db, lane, order_key="k")
    second = await put(db, lane, order_key="k", due_at=NOON + HOUR)
    await attempt_once(db, lane, Done())

    assert await try_claim(db, lane) == pytest.approx(3600)

    assert ids(await try_claim(db, lane, now=NOON + HOUR)) == [second]


async def test_items_of_one_call_keep_their_order(db: Connection, lane: Lane) -> None:
    items = [NewItem(payload=n, order_key=str(n % 3)) for n in range(30)]
    accepted = await enqueue_many(db, lane.name, items, at=NOON)

    seen: dict[str | None, list[ItemId]] = {}
    for _ in range(10):
        lease = await take(db, lane)
        assert len(lease.items) == 3
        for claimed in lease.items:
            seen.setdefault(claimed.order_key, []).append(claimed.id)
        await end(db, lane, lease, Done())

    assert sorted(each for line_of_key in seen.values() for each in line_of_key) == [
        each.id for each in accepted
    ]
    assert all(line_of_key == sorted(line_of_key) for line_of_key in seen.values())


@pytest.mark.covers("E45")
async def test_a_returned_or_lost_head_is_still_the_head(db: Connection, lane: Lane) -> None:
    first, _ = await line(db, lane, 2)
    await attempt_once(db, lane, Returned())
    assert await claim_ids(db, lane) == [first]

    await take(db, lane)
    await rescue(db, now=NOON + HOUR)

    assert await claim_ids(db, lane) == [first]


async def test_a_held_head_blocks_its_key_until_it_is_resolved(db: Connection, lane: Lane) -> None:
    first, second = await line(db, lane, 2)
    await attempt_once(db, lane, Hold("unknown"))
    assert await claim_ids(db, lane) == []

    await release(db, first, who="ops", reason="not done", now=NOON)
    assert await claim_ids(db, lane) == [first]
    await attempt_once(db, lane, Hold("unknown"))
    await cancel(db, first, who="ops", now=NOON)

    assert await claim_ids(db, lane) == [second]


# ------------------------------------------------------------------------------ a head that died


async def bury_head(db: Connection, lane: Lane, policy: str) -> tuple[Lane, list[ItemId]]:
    lane = await set_lane(db, lane.name, who="test", on_dead_head=policy)
    everything = await line(db, lane)
    await attempt_once(db, lane, Dead("no"))
    return lane, everything


@pytest.mark.covers("E70")
async def test_block_a_dead_head_stops_its_key_until_it_is_replayed(
    db: Connection, lane: Lane
) -> None:
    lane, (first, second, _) = await bury_head(db, lane, "block")
    assert await claim_ids(db, lane) == []

    await retry(db, first, who="ops", now=NOON)

    assert await attempt_once(db, lane, Done()) == [first]
    assert await claim_ids(db, lane) == [second]
    assert (await balance(db)).is_even


async def test_block_discarding_a_dead_head_promotes_its_follower(
    db: Connection, lane: Lane
) -> None:
    lane, (first, second, _) = await bury_head(db, lane, "block")

    await cancel(db, first, who="ops", now=NOON)

    assert await state_of(db, first) == "cancelled"
    assert await claim_ids(db, lane) == [second]


async def test_block_new_items_park_behind_a_dead_head(db: Connection, lane: Lane) -> None:
    lane, (first, _, _) = await bury_head(db, lane, "block")

    latest = await put(db, lane, order_key="k")

    assert await state_of(db, latest) == "parked"
    await retry(db, first, who="ops", now=NOON)
    assert await claim_ids(db, lane) == [first]


async def test_block_a_head_that_is_lost_too_often_blocks_too(db: Connection, lane: Lane) -> None:
    lane = await set_lane(db, lane.name, who="test", max_attempts=1)
    first, _ = await line(db, lane, 2)
    await take(db, lane)

    await rescue(db, now=NOON + HOUR)

    assert await state_of(db, first) == "dead"
    assert await claim_ids(db, lane) == []


async def test_block_a_head_that_expires_blocks_too(db: Connection, lane: Lane) -> None:
    first = await put(db, lane, order_key="k", not_after=NOON + SECOND)
    second = await put(db, lane, order_key="k")

    await expire(db, now=NOON + MINUTE)

    assert await claim_ids(db, lane) == []
    await cancel(db, first, who="ops", now=NOON)
    assert await claim_ids(db, lane) == [second]


async def test_a_follower_that_expires_frees_nothing(db: Connection, lane: Lane) -> None:
    first = await put(db, lane, order_key="k")
    second = await put(db, lane, order_key="k", not_after=NOON + SECOND)
    third = await put(db, lane, order_key="k")

    await expire(db, now=NOON + MINUTE)

    assert await state_of(db, second) == "dead"
    assert await claim_ids(db, lane) == [first]
    await attempt_once(db, lane, Done())
    assert await claim_ids(db, lane) == [third]


@pytest.mark.covers("E70")
async def test_park_a_replayed_head_gets_its_old_position(db: Connection, lane: Lane) -> None:
    lane, (first, second, third) = await bury_head(db, lane, "park")
    assert await claim_ids(db, lane) == [second]

    await retry(db, first, who="ops", now=NOON)

    order = [item_id for _ in range(3) for item_id in await attempt_once(db, lane, Done())]
    assert order == [second, first, third]
    assert (await balance(db)).is_even


@pytest.mark.covers("E70")
async def test_skip_a_replayed_head_becomes_the_last_of_its_key(db: Connection, lane: Lane) -> None:
    """Its followers have overtaken it: it blocks none of them, and none runs at the same time."""
    lane, (first, second, third) = await bury_head(db, lane, "skip")
    assert await claim_ids(db, lane) == [second]

    await retry(db, first, who="ops", now=NOON)

    order = [item_id for _ in range(3) for item_id in await attempt_once(db, lane, Done())]
    assert order == [second, third, first]
    assert (await balance(db)).is_even


@pytest.mark.parametrize("policy", ["park", "skip"])
async def test_a_replayed_head_without_followers_is_the_head_again(
    db: Connection, lane: Lane, policy: str
) -> None:
    lane = await set_lane(db, lane.name, who="test", on_dead_head=policy)
    (first,) = await line(db, lane, 1)
    await attempt_once(db, lane, Dead("no"))

    await retry(db, first, who="ops", now=NOON)

    assert await claim_ids(db, lane) == [first]
    await attempt_once(db, lane, Done())
    assert await db.fetchval("SELECT count(*) FROM penstock.active_key") == 0


# ---------------------------------------------------------------------------- cancel, reschedule


async def test_cancelling_a_head_promotes_the_next(db: Connection, lane: Lane) -> None:
    first, second, _ = await line(db, lane)

    await cancel(db, first, who="ops", now=NOON)

    assert await claim_ids(db, lane) == [second]


async def test_cancelling_a_follower_promotes_no_item(db: Connection, lane: Lane) -> None:
    first, second, third = await line(db, lane)

    await cancel(db, second, who="ops", now=NOON)

    assert await claim_ids(db, lane) == [first]
    await attempt_once(db, lane, Done())
    assert await claim_ids(db, lane) == [third]


async def test_a_rescheduled_follower_keeps_its_position(db: Connection, lane: Lane) -> None:
    first, second, third = await line(db, lane)

    await reschedule(db, third, NOON - HOUR, who="ops")
    await reschedule(db, second, NOON + HOUR, who="ops")

    assert await attempt_once(db, lane, Done()) == [first]
    assert ids(await try_claim(db, lane)) == []
    assert await attempt_once(db, lane, Done(), now=NOON + HOUR) == [second]
    assert ids(await try_claim(db, lane, now=NOON + HOUR)) == [third]


# ----------------------------------------------------------------------------------- at one time


async def test_a_follower_that_parks_while_its_head_ends_is_not_lost(
    pool: Pool, db: Connection, lane: Lane
) -> None:
    """The settle cannot see it yet and must not wait for its producer; the sweeper looks again."""
    (first,) = await line(db, lane, 1)
    lease = await take(db, lane)
    async with pool.acquire() as producer:
        transaction = producer.transaction()
        await transaction.start()
        second = await put(producer, lane, order_key="k")

        assert await end(db, lane, lease, Done())
        assert await state_of(db, first) == "done"
        assert await promote_vacated(db) == Promoted(keys=0, keys_left=1)
        assert await claim_ids(db, lane) == []
        await transaction.commit()

    assert await state_of(db, second) == "parked"
    assert (await promote_vacated(db)).keys == 1

    assert await claim_ids(db, lane) == [second]
    assert (await balance(db)).is_even


async def test_a_follower_whose_producer_commits_late_runs_without_a_poll_or_a_sweep(
    pool: Pool, db: Connection, lane: Lane, *, dsn: str
) -> None:
    """It waited for the next sweep, up to five seconds, in a worker that had nothing else to do."""
    may_end, recorder = asyncio.Event(), Recorder()

    async def handle(item: AnyItem) -> None:
        await recorder(item)
        await may_end.wait()

    kind = Kind(lane=lane.name, payload_type=int, handle=handle)
    async with running(worker_of(dsn, pool, kind, poll_interval=NEVER)):
        await until_listening(db)
        await put(db, lane, 1, at=datetime.now(UTC), order_key="k")
        await recorder.has(1)
        async with pool.acquire() as producer, producer.transaction():
            await put(producer, lane, 2, at=datetime.now(UTC), order_key="k")
            may_end.set()
            await until_vacated(db)
        await recorder.has(2)

    assert [item.payload for item in recorder.items] == [1, 2]


async def until_vacated(db: Connection) -> None:
    """Return once a head has ended whose followers nobody could promote."""

    async def is_vacated() -> bool:
        return bool(await db.fetchval("SELECT count(*) FROM penstock.vacated_key"))

    await until(is_vacated)


async def test_a_sweep_rests_while_a_producer_keeps_its_key(
    pool: Pool, db: Connection, lane: Lane
) -> None:
    """The sweeper swept again at once, for as long as the producer's transaction was open."""
    await line(db, lane, 1)
    lease = await take(db, lane)
    async with pool.acquire() as producer, producer.transaction():
        await put(producer, lane, order_key="k")
        await end(db, lane, lease, Done())

        swept = await sweep(pool, meter=Meter(), log=get_logger())

    assert swept.is_idle


async def test_a_producer_that_rolls_back_leaves_the_key_free(
    pool: Pool, db: Connection, lane: Lane
) -> None:
    await line(db, lane, 1)
    lease = await take(db, lane)
    async with pool.acquire() as producer:
        transaction = producer.transaction()
        await transaction.start()
        await put(producer, lane, order_key="k")
        await end(db, lane, lease, Done())
        await transaction.rollback()

    await promote_vacated(db)

    assert await db.fetchval("SELECT count(*) FROM penstock.active_key") == 0
    (latest,) = await line(db, lane, 1)
    assert await claim_ids(db, lane) == [latest]
    assert (await promote_vacated(db)).keys == 0


async def test_two_producers_of_one_key_agree_on_its_head(
    pool: Pool, db: Connection, lane: Lane
) -> None:
    async with pool.acquire() as one, pool.acquire() as other:
        first = await put(one, lane, order_key="k")
        transaction = other.transaction()
        await transaction.start()
        second = await put(other, lane, order_key="k")
        third = await put(one, lane, order_key="k")
        await transaction.commit()

    order = [item_id for _ in range(3) for item_id in await attempt_once(db, lane, Done())]

    assert order == [first, second, third]


# ------------------------------------------------------------------------------------- the policy


async def test_the_ordering_of_a_lane_with_items_cannot_change(db: Connection, lane: Lane) -> None:
    """Items are parked at enqueue, so items of two orderings cannot be mixed."""
    (first,) = await line(db, lane, 1)
    with pytest.raises(LaneNotEmpty):
        await set_lane(db, lane.name, who="test", ordering="none")
    await set_lane(db, lane.name, who="test", ordering="per_key", batch_size=7)

    await cancel(db, first, who="ops", now=NOON)

    changed = await set_lane(db, lane.name, who="test", ordering="none")
    assert changed.ordering == "none"


async def test_an_unordered_lane_ignores_order_keys(db: Connection) -> None:
    lane = await create_lane(db, "loose", who="test")
    everything = await line(db, lane)

    assert ids(await try_claim(db, lane)) == everything


async def test_a_dead_item_survives_a_change_of_ordering(db: Connection, lane: Lane) -> None:
    """Its order key was deleted with the change; a replay creates it again."""
    (first,) = await line(db, lane, 1)
    await attempt_once(db, lane, Dead("no"))
    await set_lane(db, lane.name, who="test", ordering="none")
    lane = await set_lane(db, lane.name, who="test", ordering="per_key")
    second = await put(db, lane, order_key="k")

    await retry(db, first, who="ops", now=NOON)

    assert await attempt_once(db, lane, Done()) == [second]
    assert await attempt_once(db, lane, Done()) == [first]


# --------------------------------------------------------------------------------- blocked keys


@pytest.mark.parametrize(
    ("ending", "state"),
    [(Hold("no answer"), "held"), (Dead("refused"), "dead")],
    ids=["held", "dead"],
)
async def test_items_behind_a_dead_or_held_head_are_measured(
    db: Connection, lane: Lane, *, ending: Hold | Dead, state: str
) -> None:
    """They wait for ever; an alert on the age of the oldest item must see them."""
    an_hour_ago = await db.fetchval("SELECT now() - interval '1 hour'")
    head = await put(db, lane, order_key="a", at=an_hour_ago)
    follower = await put(db, lane, order_key="a", at=an_hour_ago)
    await put(db, lane, order_key="a", at=an_hour_ago)
    await attempt_once(db, lane, ending, now=an_hour_ago)

    (depth,) = [each for each in await measure_lanes(db) if each.lane == lane.name]
    (blocked,) = await list_blocked(db)

    assert 3_600 <= depth.oldest_due_seconds < 3_700
    assert depth.blocked_keys == 1
    assert (blocked.order_key, blocked.head_id, blocked.head_state) == ("a", head, state)
    assert blocked.follower_id == follower


async def test_a_head_that_is_snoozed_again_and_again_counts_from_its_first_due_instant(
    db: Connection, lane: Lane
) -> None:
    """Behind a kill switch it waits for as long as the switch is on, and is never due for long."""
    an_hour_ago = await db.fetchval("SELECT now() - interval '1 hour'")
    await put(db, lane, order_key="a", at=an_hour_ago)
    now = await db.fetchval("SELECT now()")
    await attempt_once(db, lane, Snooze(30 * SECOND, "stopped"), now=now)
    await attempt_once(db, lane, Snooze(30 * SECOND, "stopped"), now=now + 30 * SECOND)

    (depth,) = [each for each in await measure_lanes(db) if each.lane == lane.name]

    assert 3_600 <= depth.oldest_due_seconds < 3_700


async def test_a_head_that_is_snoozed_until_an_instant_is_not_overdue(
    db: Connection, lane: Lane
) -> None:
    """It waits for an opening, as it should."""
    an_hour_ago = await db.fetchval("SELECT now() - interval '1 hour'")
    await put(db, lane, order_key="a", at=an_hour_ago)
    now = await db.fetchval("SELECT now()")
    await attempt_once(db, lane, Snooze(8 * HOUR, "closed"), now=now)

    (depth,) = [each for each in await measure_lanes(db) if each.lane == lane.name]

    assert depth.oldest_due_seconds == 0


async def test_a_head_that_blocks_nobody_is_not_counted(db: Connection, lane: Lane) -> None:
    await put(db, lane, order_key="a")
    await attempt_once(db, lane, Hold("no answer"))
    await put(db, lane, order_key="b")
    await put(db, lane, order_key="b")

    (depth,) = [each for each in await measure_lanes(db) if each.lane == lane.name]

    assert (depth.blocked_keys, depth.oldest_due_seconds) == (0, 0)
    assert await list_blocked(db) == []
