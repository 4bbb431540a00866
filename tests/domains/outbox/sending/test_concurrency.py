"""Calls of each rail at once: a full rail costs nothing, and leaves room for the others."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from penstock.base.clock import FakeClock
from penstock.domains.outbox.lanes import LANE
from penstock.domains.outbox.rails.concurrency import RailConcurrency
from penstock.domains.outbox.rails.rail import LoadedRail
from penstock.kernel.lane import set_lane
from tests.domains.outbox.sending.ledger import Ledger, booked, keeping, loaded
from tests.domains.outbox.sending.scene import Outbox, opened_outbox

AT_MOST = 2
LONG = timedelta(seconds=60)  # No test waits for it.


class TwoRails:
    """The rails `slow`, with a cap, and `quick`, each with a ledger of its own."""

    def __init__(self, slow: Ledger, quick: Ledger) -> None:
        self._rails = {
            "slow": loaded(slow.port, rail_type="slow", concurrency_max=AT_MOST),
            "quick": loaded(quick.port, rail_type="quick"),
        }

    async def find(self, rail_type: str) -> LoadedRail | None:
        return self._rails.get(rail_type)


async def send(outbox: Outbox, rail_type: str, *, count: int) -> list[UUID]:
    """Have instructions of as many participants accepted."""
    names = [f"{rail_type}-{number}" for number in range(count)]
    return [await outbox.send(name, participant=name, rail_type=rail_type) for name in names]


@asynccontextmanager
async def working(outbox: Outbox, *, concurrency: int) -> AsyncGenerator[None]:
    """Run a worker while the body runs; one attempt too many ends an instruction as failed."""
    async with outbox.app.pool.acquire() as db:
        await set_lane(db, LANE, who="test", batch_size=20, concurrency=concurrency, max_attempts=1)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(outbox.app.run_worker(stop))
        async with asyncio.timeout(60):
            yield
        stop.set()


@pytest.fixture
def clock() -> FakeClock:
    """The worker uses the clock of the database."""
    return FakeClock(datetime.now(UTC))


@pytest.mark.covers("E31")
async def test_a_slow_rail_leaves_room_for_the_others_and_costs_no_attempt(
    dsn: str, clock: FakeClock
) -> None:
    """One bank that hangs must not stop the payments to all others."""
    async with (
        keeping(Ledger(orders=["wait"] * AT_MOST)) as slow,
        keeping(Ledger()) as quick,
        opened_outbox(dsn, clock, TwoRails(slow, quick)) as outbox,
    ):
        sent = [*await send(outbox, "slow", count=6), *await send(outbox, "quick", count=6)]

        async with working(outbox, concurrency=4):
            await booked(quick, 6)
            assert slow.count("send") <= AT_MOST
            slow.resume.set()
            await booked(slow, 6)

        assert slow.most_at_once == AT_MOST
        for each in sent:
            assert await outbox.states(each) == ["DISPATCHED"]
        snoozes = await outbox.app.pool.fetchval(
            "SELECT count(*) FROM penstock.attempt WHERE outcome = 'snooze' AND reason ~ 'slow'"
        )
        assert snoozes > 0, "some found no place, and it cost them no attempt"


@pytest.mark.covers("E30")
async def test_a_process_makes_no_more_calls_at_once_than_the_lane_allows(
    dsn: str, clock: FakeClock
) -> None:
    async with (
        keeping(Ledger(orders=["wait"] * 6)) as ledger,
        opened_outbox(dsn, clock, loaded(ledger.port)) as outbox,
    ):
        await send(outbox, "loopback", count=6)

        async with working(outbox, concurrency=3):
            await booked(ledger, 3)
            ledger.resume.set()
            await booked(ledger, 6)

        assert ledger.most_at_once == 3


async def test_a_place_goes_to_the_one_that_waits_longest() -> None:
    places = RailConcurrency(wait=LONG)
    assert places.enter_now("bank", at_most=1)
    order: list[str] = []

    async def enter(name: str, begun: asyncio.Event) -> None:
        begun.set()
        assert await places.enter("bank", at_most=1)
        order.append(name)
        places.leave("bank")

    async with asyncio.TaskGroup() as tasks:
        for name in ("first", "second"):
            begun = asyncio.Event()
            tasks.create_task(enter(name, begun))
            await begun.wait()
        places.leave("bank")

    assert order == ["first", "second"]
    assert places.enter_now("bank", at_most=1), "all places were given back"


async def test_a_full_rail_is_left_after_a_moment_and_keeps_no_place() -> None:
    places = RailConcurrency()
    assert places.enter_now("bank", at_most=1)

    assert not await places.enter("bank", at_most=1)

    assert places.enter_now("other", at_most=1), "another rail has its own places"
    places.leave("bank")
    assert places.enter_now("bank", at_most=1)


async def test_one_that_is_cancelled_while_it_waits_gives_its_place_back() -> None:
    places = RailConcurrency(wait=LONG)
    assert places.enter_now("bank", at_most=1)
    begun = asyncio.Event()

    async def enter() -> None:
        begun.set()
        await places.enter("bank", at_most=1)

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(enter())
        await begun.wait()
        places.leave("bank")  # Gives the place to the one that waits, before it runs again.
        waiting.cancel()

    assert places.enter_now("bank", at_most=1)
