"""A worker whose own clock is wrong delivers as if it were right: the database's clock counts."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from structlog.testing import capture_logs

from penstock import Penstock
from penstock.api import create_app
from penstock.base.clock import FakeClock
from penstock.postgres.clock import DatabaseClock
from tests.api.scene import called
from tests.domains.webhooks.scene import Tenant, body_of, make_tenant, working
from tests.fault.waiting import until
from tests.receiver import PATIENCE, Reply, receiving

OFF = timedelta(minutes=10)  # Twice what receivers tolerate.
TOLERANCE = timedelta(minutes=5)


@pytest.fixture(params=[OFF, -OFF], ids=["ahead", "behind"])
async def wrong(dsn: str, request: pytest.FixtureRequest) -> AsyncGenerator[Tenant]:
    """A tenant of an app on a machine whose clock is wrong."""
    clock = DatabaseClock(local=FakeClock(datetime.now(UTC) + request.param))
    async with Penstock(dsn=dsn, clock=clock) as app, called(app, create_app(app)) as clients:
        yield make_tenant(clients.admin, app)


async def test_the_timestamp_of_a_signature_is_the_databases(wrong: Tenant) -> None:
    """Receivers refuse what is signed minutes ago or ahead, and deliveries would be dead."""
    async with receiving() as receiver, working(wrong.penstock):
        await wrong.subscribe(receiver.url)
        event = await wrong.send()
        await wrong.until(event["id"], "delivered")
        now = await wrong.penstock.pool.fetchval("SELECT now()")

    signed_at = int(receiver.requests[0].headers["webhook-timestamp"])
    assert abs(now.timestamp() - signed_at) < TOLERANCE.total_seconds()


async def test_a_date_to_come_back_is_read_with_the_databases_clock(wrong: Tenant) -> None:
    hour = timedelta(hours=1)
    now = await wrong.penstock.pool.fetchval("SELECT now()")
    answer = Reply(429, headers={"Retry-After": format_datetime(now + hour, usegmt=True)})
    async with receiving(answers=[answer]) as receiver, working(wrong.penstock):
        await wrong.subscribe(receiver.url)
        event = await wrong.send()
        shown = await wrong.until_shown(event["id"], lambda event: event["attempts"] == 1)

    next_at = datetime.fromisoformat(shown["next_attempt_at"])
    assert abs(next_at - now - hour) < TOLERANCE


async def test_a_worker_reports_that_its_clock_is_off(wrong: Tenant) -> None:
    """In a warning, once, and as a metric."""
    warned: list[float] = []

    with capture_logs() as lines:
        async with working(wrong.penstock):

            async def is_warned() -> bool:
                await wrong.penstock.pool.fetchval("SELECT 1")
                warned[:] = [
                    line["offset_seconds"] for line in lines if line["event"] == "clock.differed"
                ]
                return bool(warned)

            await until(is_warned, within=PATIENCE)
            page = await wrong.client.get("/metrics")

    offset = float(page.text.split("\nclock_offset_seconds ")[1].split("\n")[0])
    assert len(warned) == 1
    assert abs(offset) == pytest.approx(OFF.total_seconds(), abs=TOLERANCE.total_seconds())
    assert (offset > 0) == (warned[0] > 0)
    assert body_of(await wrong.client.get("/health"))
