"""Sixteen concurrent callers: one slot per event, one event per place, and none is lost."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from penstock.base.aio import spawn
from penstock.domains.slots.assign import Assigned, SlotRequest, assign_many
from penstock.domains.slots.cancel import cancel
from penstock.domains.slots.config import set_config
from penstock.postgres.pool import Connection, Pool, open_pool
from tests.fault.waiting import is_blocked, until

CALLERS = 16
PATIENCE = 20.0  # Seconds; a busy machine needs a few.
SECOND = timedelta(seconds=1)
WANTED = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)


@pytest.fixture
async def crowd(dsn: str) -> AsyncGenerator[Pool]:
    """A connection for each caller."""
    pool = await open_pool(dsn, min_size=CALLERS, max_size=CALLERS)
    async with pool.acquire() as db:
        await set_config(db, "busy", who="test", max_per_window=10, window_size=SECOND)
    yield pool
    pool.terminate()


async def ask(crowd: Pool, pool: str, requests: Sequence[SlotRequest]) -> list[Assigned]:
    async with crowd.acquire() as db:
        return await assign_many(db, pool, requests)


async def fullest_window(db: Connection) -> int:
    return int(await db.fetchval("SELECT max(slot_ct) FROM penstock.rl_wndw_ct"))


async def taken_and_booked(db: Connection) -> tuple[int, int]:
    """Return how many cells the runs say are taken, and how many slots there are."""
    taken = await db.fetchval("SELECT sum(last_cell - first_cell + 1) FROM penstock.slot_run")
    return int(taken), int(await db.fetchval("SELECT count(*) FROM penstock.slot"))


@pytest.mark.covers("D30", "D48", "D96")
async def test_concurrent_callers_fill_the_windows_without_gaps_or_duplicates(crowd: Pool) -> None:
    """The first 800 cells are taken, one each, in any order of callers."""
    batches = [
        [SlotRequest(f"{caller}-{n}", WANTED) for n in range(start, start + 5)]
        for caller in range(CALLERS)
        for start in range(0, 50, 5)
    ]

    answers = await asyncio.gather(*(ask(crowd, "busy", batch) for batch in batches))

    scheduled = sorted(each.slot.scheduled_at for answer in answers for each in answer if each.slot)
    assert scheduled == [WANTED + n * SECOND / 10 for n in range(800)]


@pytest.mark.covers("D3", "D47")
async def test_callers_with_the_same_event_get_the_same_slot(crowd: Pool) -> None:
    """One of them books; the others get its slot, and no other cell is taken."""
    request = SlotRequest("one", WANTED)

    answers = await asyncio.gather(*(ask(crowd, "busy", [request]) for _ in range(CALLERS)))

    outcomes = Counter(answer[0].outcome for answer in answers)
    assert outcomes == {"assigned": 1, "existing": CALLERS - 1}
    assert len({answer[0].slot.scheduled_at for answer in answers if answer[0].slot}) == 1
    async with crowd.acquire() as db:
        assert await taken_and_booked(db) == (1, 1)


@pytest.mark.covers("D84", "D85")
async def test_an_event_requested_in_two_pools_at_once_gets_one_slot(crowd: Pool) -> None:
    """The second request gets the slot of the first, and its cell is freed."""
    async with crowd.acquire() as db:
        await set_config(db, "other", who="test", max_per_window=10, window_size=SECOND)
    events = [f"event-{n}" for n in range(60)]
    batches = [
        (pool, [SlotRequest(event, WANTED)]) for event in events for pool in ("busy", "other")
    ]

    answers = await asyncio.gather(*(ask(crowd, pool, batch) for pool, batch in batches))

    outcomes = Counter(answer[0].outcome for answer in answers)
    assert outcomes == {"assigned": 60, "existing": 60}
    async with crowd.acquire() as db:
        assert await taken_and_booked(db) == (60, 60)


@pytest.mark.covers("D84", "D85")
async def test_a_bulk_insert_that_collides_with_another_pool_is_repeated(crowd: Pool) -> None:
    """The bulk insert is rolled back and repeated for the events without a slot."""
    async with crowd.acquire() as db:
        await set_config(db, "other", who="test", max_per_window=10, window_size=SECOND)
    requests = [SlotRequest(f"event-{n}", WANTED) for n in range(5)]
    async with crowd.acquire() as db, asyncio.TaskGroup() as group, db.transaction():
        await assign_many(db, "other", [requests[1], requests[3]])
        asked = spawn(group, ask(crowd, "busy", requests))
        await until(lambda: is_blocked(crowd), within=PATIENCE)
    answers = asked.result()

    outcomes = [each.outcome for each in answers]
    assert outcomes == ["assigned", "existing", "assigned", "existing", "assigned"]
    assert [each.slot.pool for each in answers if each.slot] == [
        "busy", "other", "busy", "other", "busy",
    ]  # fmt: skip
    async with crowd.acquire() as db:
        assert await taken_and_booked(db) == (5, 5)


async def test_nothing_is_lost_or_duplicated_during_assigns_cancels_and_rule_changes(
    crowd: Pool,
) -> None:
    """Assignments, repeats, cancellations and a lower capacity, concurrently."""
    dice = random.Random(7)
    kept: dict[str, datetime] = {}

    async def call(caller: int) -> None:
        for n in range(12):
            event = f"{caller}-{n}"
            request = SlotRequest(event, WANTED + dice.randrange(3) * SECOND)
            (given,) = await ask(crowd, "busy", [request])
            (again,) = await ask(crowd, "busy", [request])
            assert given.slot is not None
            assert again.slot is not None
            assert again.slot.scheduled_at == given.slot.scheduled_at
            kept[event] = given.slot.scheduled_at
            if dice.random() < 0.3:
                async with crowd.acquire() as db:
                    await cancel(db, event, who="test")
                del kept[event]

    async def cut() -> None:
        async with crowd.acquire() as db:
            for capacity in (7, 13, 5):
                await set_config(
                    db, "busy", who="test", max_per_window=capacity, window_size=SECOND
                )

    await asyncio.gather(cut(), *(call(caller) for caller in range(CALLERS - 1)))

    async with crowd.acquire() as db:
        rows = await db.fetch("SELECT event_id, scheduled_at FROM penstock.slot")
        assert {row["event_id"]: row["scheduled_at"] for row in rows} == kept
        assert len(set(kept.values())) == len(kept)
        assert await fullest_window(db) <= 13
        before = await db.fetch("SELECT first_cell, last_cell FROM penstock.slot_run ORDER BY 1")
        await db.execute(
            "SELECT penstock.mark_cells(pool_id, $1, '2200-01-01Z') FROM penstock.slot_pool "
            "WHERE name = 'busy'",
            WANTED - SECOND,
        )
        after = await db.fetch("SELECT first_cell, last_cell FROM penstock.slot_run ORDER BY 1")
        assert list(map(tuple, before)) == list(map(tuple, after))


async def test_the_same_events_in_opposite_order_do_not_deadlock_two_pools(crowd: Pool) -> None:
    """The second waits for the first, and then gets its slots."""
    async with crowd.acquire() as db:
        await set_config(db, "other", who="test", max_per_window=10, window_size=SECOND)
    forth = [SlotRequest(f"event-{n}", WANTED + n * SECOND) for n in range(2_000)]
    back = [
        SlotRequest(request.event_id, WANTED + n * SECOND)
        for n, request in enumerate(reversed(forth))
    ]

    answers = await asyncio.gather(ask(crowd, "busy", forth), ask(crowd, "other", back))

    outcomes = Counter(each.outcome for answer in answers for each in answer)
    assert outcomes == {"assigned": 2_000, "existing": 2_000}
    async with crowd.acquire() as db:
        assert await taken_and_booked(db) == (2_000, 2_000)
