"""Invariants of the slots in the database, each on random requests."""

import asyncio
import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Coroutine, Generator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.domains.slots.assign import SlotRequest, assign, assign_many
from penstock.domains.slots.cancel import cancel
from penstock.domains.slots.config import set_config
from penstock.domains.slots.slot import Slot
from penstock.postgres.pool import Connection, connect

EXAMPLES = os.environ.get("PENSTOCK_MODEL_EXAMPLES")  # As in the differential test.
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
POOL = "pool"

TAKEN_CELLS = """
SELECT coalesce(sum(last_cell - first_cell + 1), 0)::integer
FROM penstock.slot_run JOIN penstock.slot_pool USING (pool_id)
WHERE name = $1
"""
COUNT_SLOTS = """
SELECT count(*)::integer FROM penstock.slot JOIN penstock.slot_pool USING (pool_id) WHERE name = $1
"""

each_time = settings(
    max_examples=int(EXAMPLES or 40),
    derandomize=EXAMPLES is None,
    database=None,
    deadline=None,
    print_blob=True,
    phases=[Phase.generate] if EXAMPLES is None else [Phase.generate, Phase.shrink],
    # The examples share a session on purpose: each is a transaction that is rolled back.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
sizes = st.sampled_from([100, 333, 1_000, 4_000, 7_000]).map(lambda each: each * MILLISECOND)
capacities = st.integers(1, 7)
offsets = st.one_of(
    st.integers(-4, 40).map(lambda quarters: quarters * SECOND / 4),
    st.timedeltas(-SECOND, 10 * SECOND),
)
request_lists = st.lists(offsets, min_size=1, max_size=40)


class Session:
    """One connection on its own event loop, because Hypothesis does not await."""

    def __init__(self, runner: asyncio.Runner, db: Connection) -> None:
        self.runner = runner
        self.db = db

    def run(self, example: Coroutine[Any, Any, None]) -> None:
        """Await an example and roll it back."""

        async def undo() -> None:
            transaction = self.db.transaction()
            await transaction.start()
            try:
                await example
            finally:
                await transaction.rollback()

        self.runner.run(undo())


@pytest.fixture
def session(dsn: str) -> Generator[Session]:
    with asyncio.Runner() as runner:
        opened = Session(runner, runner.run(connect(dsn)))
        yield opened
        runner.run(opened.db.close())


async def make_pool(db: Connection, size: timedelta, capacity: int, *, name: str = POOL) -> None:
    """Create a pool, or a new version of its rule."""
    await set_config(
        db,
        name,
        who="test",
        max_per_window=capacity,
        window_size=size,
        horizon=2 * 24 * 3600 * SECOND,
        now=NOON,
    )


async def book(db: Connection, requests: list[timedelta], *, name: str = "event") -> list[Slot]:
    """Assign slots to requests one after the other."""
    return [
        await assign(db, POOL, SlotRequest(f"{name}-{number}", NOON + offset), now=NOON)
        for number, offset in enumerate(requests)
    ]


async def book_together(
    db: Connection, requests: list[timedelta], *, name: str = "event"
) -> list[Slot]:
    wanted = [
        SlotRequest(f"{name}-{number}", NOON + offset) for number, offset in enumerate(requests)
    ]
    answers = await assign_many(db, POOL, wanted, now=NOON)
    assert {answer.outcome for answer in answers} == {"assigned"}
    return [answer.slot for answer in answers if answer.slot is not None]


def instants(slots: list[Slot]) -> list[datetime]:
    return sorted(slot.scheduled_at for slot in slots)


@pytest.mark.covers("D24")
@each_time
@given(size=sizes, capacity=capacities, requests=request_lists, is_batch=st.booleans())
def test_a_slot_is_never_before_its_requested_time_nor_outside_its_window(
    session: Session, *, size: timedelta, capacity: int, requests: list[timedelta], is_batch: bool
) -> None:
    async def example() -> None:
        await make_pool(session.db, size, capacity)

        slots = await (book_together if is_batch else book)(session.db, requests)

        for offset, slot in zip(requests, slots, strict=True):
            assert slot.scheduled_at >= max(NOON + offset, NOON)
            assert (slot.window_at - EPOCH) % size == timedelta(0)
            assert slot.window_at <= slot.scheduled_at < slot.window_at + size
        assert len({slot.scheduled_at for slot in slots}) == len(slots)

    session.run(example())


@pytest.mark.covers("D59", "D79")
@each_time
@given(
    size=sizes,
    capacity=capacities,
    requests=request_lists,
    raised_by=st.integers(0, 5),
    more=request_lists,
)
def test_no_window_is_booked_beyond_its_capacity(
    session: Session,
    *,
    size: timedelta,
    capacity: int,
    requests: list[timedelta],
    raised_by: int,
    more: list[timedelta],
) -> None:
    """Not even where slots of a smaller capacity are between the cells of a larger one."""

    async def example() -> None:
        await make_pool(session.db, size, capacity)
        before = await book(session.db, requests)
        assert max(Counter(slot.window_at for slot in before).values()) <= capacity

        await make_pool(session.db, size, capacity + raised_by)
        slots = before + await book_together(session.db, more, name="later")

        assert max(Counter(slot.window_at for slot in slots).values()) <= capacity + raised_by
        assert len(set(instants(slots))) == len(slots)

    session.run(example())


@pytest.mark.covers("D59", "D79")
@each_time
@given(size=sizes, capacity=capacities, requests=request_lists)
def test_no_interval_as_long_as_a_window_holds_more_than_its_capacity(
    session: Session, *, size: timedelta, capacity: int, requests: list[timedelta]
) -> None:
    """Wherever it begins; one more only if both ends are included."""

    async def example() -> None:
        await make_pool(session.db, size, capacity)

        times = instants(await book_together(session.db, requests))

        for index, start_at in enumerate(times):
            ends_at = start_at + size
            assert bisect_left(times, ends_at) - index <= capacity
            assert bisect_left(times, ends_at + timedelta.resolution) - index <= capacity + 1

    session.run(example())


@pytest.mark.covers("D83")
@each_time
@given(size=sizes, capacity=capacities, requests=request_lists, data=st.data())
def test_the_taken_cells_do_not_depend_on_the_order_of_requests(
    session: Session,
    *,
    size: timedelta,
    capacity: int,
    requests: list[timedelta],
    data: st.DataObject,
) -> None:
    """Many times in one window, in two orders, take the same cells."""
    shuffled = data.draw(st.permutations(requests))

    async def example() -> None:
        await make_pool(session.db, size, capacity)

        transaction = session.db.transaction()
        await transaction.start()
        first = await book(session.db, requests)
        await transaction.rollback()
        second = await book(session.db, shuffled)

        assert instants(first) == instants(second)

    session.run(example())


@each_time
@given(
    size=sizes,
    capacity=capacities,
    lowered_to=capacities,
    requests=request_lists,
    data=st.data(),
)
def test_a_cancel_and_an_assign_conserve_the_taken_cells(
    session: Session,
    *,
    size: timedelta,
    capacity: int,
    lowered_to: int,
    requests: list[timedelta],
    data: st.DataObject,
) -> None:
    """The next event gets the same slot, and there are as many taken cells as slots."""
    number = data.draw(st.integers(0, len(requests) - 1))

    async def example() -> None:
        await make_pool(session.db, size, capacity)
        slots = await book(session.db, requests)
        assert await session.db.fetchval(TAKEN_CELLS, POOL) == len(slots)

        await cancel(session.db, f"event-{number}", who="test", now=NOON)
        assert await session.db.fetchval(TAKEN_CELLS, POOL) == len(slots) - 1
        successor = SlotRequest("successor", NOON + requests[number])
        slot = await assign(session.db, POOL, successor, now=NOON)

        assert slot.scheduled_at == slots[number].scheduled_at
        assert await session.db.fetchval(TAKEN_CELLS, POOL) == len(slots)

        # After a lower capacity a window may have more slots than cells; no slot is lost.
        await make_pool(session.db, size, lowered_to)
        await cancel(session.db, "successor", who="test", now=NOON)
        again = await assign(session.db, POOL, successor, now=NOON)
        assert again.scheduled_at >= max(successor.requested_at, NOON)
        assert await session.db.fetchval(COUNT_SLOTS, POOL) == len(slots)

    session.run(example())
