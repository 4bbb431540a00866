"""The rate is decided in the claim, so it is exact over any number of workers."""

import asyncio
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.kernel.claim import Cursor, Lease, SlotRange, claim
from penstock.kernel.enqueue import enqueue_many
from penstock.kernel.item import NewItem
from penstock.kernel.lane import Lane, create_lane, set_lane
from penstock.kernel.pace import MARGIN, tolerance
from penstock.postgres.pool import Connection, Pool
from tests.kernel.scene import HOUR, MILLISECOND, MINUTE, NOON, SECOND, ids, put, take, try_claim

NEARLY = timedelta(microseconds=20)  # Slots are computed in floats and kept in microseconds.


async def fill(db: Connection, lane: Lane, count: int, *, due_at: datetime = NOON) -> None:
    items = [NewItem(payload=None, due_at=due_at) for _ in range(count)]
    await enqueue_many(db, lane.name, items, at=NOON)


def starts(lease: Lease) -> list[datetime]:
    """Return when a worker that received the lease at once starts its items."""
    return [
        lease.claimed_at + timedelta(seconds=max(0.0, claimed.start_in)) for claimed in lease.items
    ]


def most_within(instants: list[datetime], window: timedelta) -> int:
    """Return the largest number of instants in any half-open window of this length."""
    ordered = sorted(instants)
    most = first = 0
    for last, instant in enumerate(ordered):
        while instant - ordered[first] >= window - NEARLY:
            first += 1
        most = max(most, last - first + 1)
    return most


async def test_slots_are_evenly_spaced(db: Connection, lane: Lane) -> None:
    await set_lane(db, lane.name, who="test", rate=100)
    await fill(db, lane, 50)

    lease = await take(db, lane)

    gaps = [later - earlier for earlier, later in pairwise(starts(lease))]
    assert len(lease.items) == 21  # 200 ms ahead, both ends included.
    assert all(abs(gap - 10 * MILLISECOND) <= NEARLY for gap in gaps)


async def test_a_claim_without_a_free_slot_returns_when_there_is_one(
    db: Connection, lane: Lane
) -> None:
    await set_lane(db, lane.name, who="test", rate=1)
    await fill(db, lane, 2)
    await take(db, lane)

    assert await try_claim(db, lane) == pytest.approx(0.8)

    (claimed,) = (await take(db, lane, now=NOON + 800 * MILLISECOND)).items
    assert claimed.start_in == pytest.approx(0.2)


async def test_a_burst_starts_at_once_and_then_the_rate_holds(db: Connection, lane: Lane) -> None:
    await set_lane(db, lane.name, who="test", rate=10, burst=5)
    await fill(db, lane, 20)

    lease = await take(db, lane)

    at_once = [instant for instant in starts(lease) if instant == NOON]
    assert len(at_once) == 5
    assert most_within(starts(lease), SECOND) <= 15


async def test_an_idle_lane_saves_up_no_more_than_its_burst(db: Connection, lane: Lane) -> None:
    await set_lane(db, lane.name, who="test", rate=10, burst=2)
    await fill(db, lane, 100)
    await take(db, lane)

    lease = await take(db, lane, now=NOON + HOUR)

    assert len([instant for instant in starts(lease) if instant == NOON + HOUR]) == 2


async def test_several_claimers_share_one_rate(pool: Pool, db: Connection, lane: Lane) -> None:
    """Four workers on one lane must not make four times its rate."""
    await set_lane(db, lane.name, who="test", rate=50, burst=3)
    await fill(db, lane, 400)
    instants: list[datetime] = []

    async def claim_for_two_seconds() -> None:
        async with pool.acquire() as connection:
            for step in range(40):
                now = NOON + step * 50 * MILLISECOND
                found = await try_claim(connection, lane, now=now, limit=7)
                if isinstance(found, Lease):
                    instants.extend(starts(found))

    await asyncio.gather(*(claim_for_two_seconds() for _ in range(4)))

    assert len(instants) >= 0.98 * 2 * 50
    assert most_within(instants, SECOND) <= 50 + 3
    assert most_within(instants, SECOND / 10) <= 5 + 3


@given(
    rate=st.sampled_from([0.5, 3, 10, 77, 1000, 20_000]),
    burst=st.integers(1, 20),
    steps=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 60)), min_size=1, max_size=12),
)
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
async def test_no_window_exceeds_rate_and_burst(
    db: Connection, *, rate: float, burst: int, steps: list[tuple[int, int]]
) -> None:
    """However claims are spread over time: any window of w seconds has at most rate * w + burst."""
    lane = await create_lane(db, "any", who="test", batch_size=1_000)
    await db.execute("DELETE FROM penstock.ready")
    await db.execute("UPDATE penstock.lane_pacing SET next_slot_at = '-infinity'")
    lane = await set_lane(db, lane.name, who="test", rate=rate, burst=burst)
    await fill(db, lane, sum(limit for _, limit in steps))
    now = NOON
    instants: list[datetime] = []

    for wait, limit in steps:
        now += wait * MILLISECOND
        found = await try_claim(db, lane, now=now, limit=limit)
        if isinstance(found, Lease):
            instants += starts(found)

    for window in (SECOND / 10, SECOND, 10 * SECOND):
        assert most_within(instants, window) <= rate * window.total_seconds() + burst


async def test_a_higher_rate_holds_at_once(db: Connection, lane: Lane) -> None:
    """A slot that was given under one per quarter of an hour must not hold back more."""
    await set_lane(db, lane.name, who="test", rate=0.001)
    await fill(db, lane, 30)
    await take(db, lane)

    await set_lane(db, lane.name, who="test", rate=1000)

    assert len((await take(db, lane, now=NOON + 2 * SECOND)).items) > 1


async def test_a_lane_without_a_rate_has_no_slots(db: Connection, lane: Lane) -> None:
    await set_lane(db, lane.name, who="test", rate=1)
    await fill(db, lane, 10)
    await take(db, lane)

    await set_lane(db, lane.name, who="test", rate=None)

    lease = await take(db, lane)
    assert len(lease.items) == 9
    assert starts(lease) == [NOON] * 9


@pytest.mark.covers("A90")
async def test_a_buffer_does_not_exceed_the_rate_at_the_due_instant(
    db: Connection, lane: Lane
) -> None:
    """Claimed over a minute ahead, a million payments due at 16:00 still leave at the rate."""
    await set_lane(db, lane.name, who="test", rate=10, pre_start_buffer=MINUTE)
    await fill(db, lane, 40, due_at=NOON + 3 * SECOND)
    instants: list[datetime] = []

    for step in range(60):
        found = await try_claim(db, lane, now=NOON + step * SECOND / 10)
        if isinstance(found, Lease):
            instants += starts(found)

    assert min(instants) >= NOON + 3 * SECOND
    assert most_within(instants, SECOND) <= 10 + 1


async def test_the_rate_limits_batches_and_the_batch_size_still_holds(
    db: Connection, lane: Lane
) -> None:
    await set_lane(db, lane.name, who="test", rate=1_000, batch_size=7)
    await fill(db, lane, 30)

    assert len((await take(db, lane)).items) == 7


async def claim_slots(db: Connection, lane: Lane, slots: SlotRange) -> Lease:
    found = await claim(db, lane.lane_id, Cursor(), limit=300, worker="test", slots=slots, now=NOON)
    assert isinstance(found, Lease)
    return found


async def test_no_slot_is_over_when_the_items_arrive(db: Connection, lane: Lane) -> None:
    """Else a worker whose answers are slow would give back all that it claims."""
    await set_lane(db, lane.name, who="test", rate=1_000, burst=100)
    await fill(db, lane, 300)

    lease = await claim(
        db,
        lane.lane_id,
        Cursor(),
        limit=300,
        worker="w",
        slots=SlotRange(delay=80 * MILLISECOND),
        now=NOON,
    )

    assert isinstance(lease, Lease)
    late_max = tolerance(1_000, 100) + MARGIN.total_seconds()
    assert lease.items[0].start_in + late_max == pytest.approx(0.08)


async def test_a_slow_worker_gets_no_slots_of_the_past(db: Connection, lane: Lane) -> None:
    await set_lane(db, lane.name, who="test", rate=1_000)
    await fill(db, lane, 10)

    lease = await claim(
        db,
        lane.lane_id,
        Cursor(),
        limit=10,
        worker="w",
        slots=SlotRange(delay=50 * MILLISECOND),
        now=NOON,
    )

    assert isinstance(lease, Lease)
    assert lease.items[0].start_in == pytest.approx(0.02)


async def test_an_empty_claim_uses_up_no_slot(db: Connection, lane: Lane) -> None:
    await set_lane(db, lane.name, who="test", rate=1)
    assert await try_claim(db, lane) is None

    item_id = await put(db, lane)

    assert ids(await try_claim(db, lane)) == [item_id]
