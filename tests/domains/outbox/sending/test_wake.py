"""What wakes a worker of the outbox, and that two of them never send the same instruction."""

from datetime import UTC, datetime, timedelta

import pytest

from penstock.base.clock import FakeClock
from penstock.base.settings import Settings
from penstock.domains.outbox.lanes import LANE
from penstock.kernel.lane import set_lane
from tests.domains.outbox.sending.ledger import Ledger, booked
from tests.domains.outbox.sending.scene import Outbox
from tests.kernel.scene import worker_of
from tests.kernel.test_worker import NEVER, running, until_listening


@pytest.fixture
def clock() -> FakeClock:
    """The worker uses the clock of the database."""
    return FakeClock(datetime.now(UTC))


async def send_now(outbox: Outbox, name: str) -> None:
    """Send what is due now: only the poll finds at once what became due long before."""
    outbox.clock.advance(datetime.now(UTC) - outbox.clock.now())
    await outbox.send(name)


@pytest.mark.covers("E25", "E67")
async def test_notifications_alone_move_instructions(
    dsn: str, outbox: Outbox, ledger: Ledger
) -> None:
    kind = outbox.app.kinds[LANE]
    async with running(worker_of(dsn, outbox.app.pool, kind, poll_interval=NEVER)):
        async with outbox.app.pool.acquire() as db:
            await until_listening(db)
        for number in range(1, 4):
            await send_now(outbox, f"i{number}")
            await booked(ledger, number)

    assert ledger.bookings == ["i1", "i2", "i3"]


@pytest.mark.covers("E24", "E25", "E67")
async def test_the_poll_alone_moves_instructions(dsn: str, outbox: Outbox, ledger: Ledger) -> None:
    """At the interval that a worker has by default."""
    kind = outbox.app.kinds[LANE]
    interval = Settings().poll_interval
    worker = worker_of(
        dsn, outbox.app.pool, kind, poll_interval=interval, hears_notifications=False
    )
    async with running(worker):
        for number in range(1, 4):
            await send_now(outbox, f"i{number}")
        await booked(ledger, 3)

    assert timedelta(milliseconds=250) <= interval <= timedelta(seconds=1)
    assert ledger.bookings == ["i1", "i2", "i3"]


@pytest.mark.covers("E27")
async def test_two_workers_send_every_instruction_once(
    dsn: str, outbox: Outbox, ledger: Ledger
) -> None:
    """The rail of this test recognises no keys: a second claim would be a second payment."""
    async with outbox.app.pool.acquire() as db:
        await set_lane(db, LANE, who="test", batch_size=7)
    names = [f"i{number}" for number in range(60)]
    for number, name in enumerate(names):
        await outbox.send(name, participant=f"p{number % 20}")

    kind = outbox.app.kinds[LANE]
    async with running(*(worker_of(dsn, outbox.app.pool, kind) for _ in range(2))):
        await booked(ledger, len(names))

    assert sorted(ledger.bookings) == sorted(names)
    assert ledger.paid_twice == []
    tokens = await outbox.app.pool.fetchval("SELECT count(*) FROM penstock.attempt")
    assert tokens == len(names), "each was claimed once"
