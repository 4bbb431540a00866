"""The limits of a subscription as its endpoint and its owner see them, and what they default to."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from datetime import datetime, timedelta

import pytest
from httpx import AsyncClient

from penstock import Penstock
from penstock.api import create_app
from penstock.base.aio import spawn
from penstock.base.clock import FakeClock
from penstock.base.settings import read_once
from penstock.kernel.lane import set_lane
from penstock.limits.gate import KeyStatus, Permit, Refusal, Rules, Verdict
from penstock.limits.local import LocalGate
from penstock.testing import run_due
from tests.api.scene import called, problem
from tests.domains.webhooks.scene import (
    Subscribed,
    Tenant,
    make_tenant,
    opened_with,
    working,
)
from tests.ports import free_port
from tests.receiver import Reply, receiving

MILLISECOND = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
MUCH_LATER = [86_400]  # A retry schedule that keeps failed deliveries out of the way.


async def deliver_one(tenant: Tenant, clock: FakeClock) -> str:
    """Send an event, let it be tried once, and return its status."""
    event = await tenant.send()
    await run_due(tenant.penstock, clock)
    return (await tenant.show(event["id"]))["status"]


async def breaker_of(tenant: Tenant, subscribed: Subscribed) -> tuple[str, int]:
    status = await tenant.endpoint_status(subscribed)
    return status["breaker"], status["failures"]


# -------------------------------------------------------------------------------- the breaker


@pytest.mark.covers("B43", "B48")
async def test_five_failed_deliveries_in_a_row_open_the_breaker(
    timed: Tenant, clock: FakeClock
) -> None:
    answers = [*[500] * 4, 200, *[500] * 5]
    async with receiving(answers=answers) as receiver:
        subscribed = await timed.subscribe(receiver.url, retry_schedule_seconds=MUCH_LATER)
        seen: list[tuple[str, int]] = []
        for _ in answers:
            await deliver_one(timed, clock)
            seen.append(await breaker_of(timed, subscribed))
        await deliver_one(timed, clock)

        assert len(receiver.requests) == len(answers), "nothing passes an open breaker"

    counts = [1, 2, 3, 4, 0, 1, 2, 3, 4]
    assert seen[:-1] == [("closed", count) for count in counts]
    assert seen[-1][0] == "open"


async def opened_breaker(tenant: Tenant, clock: FakeClock, url: str) -> Subscribed:
    """Return a subscription whose breaker has just opened; the receiver fails five times."""
    subscribed = await tenant.subscribe(url, retry_schedule_seconds=MUCH_LATER)
    for _ in range(5):
        await deliver_one(tenant, clock)
    assert (await breaker_of(tenant, subscribed))[0] == "open"
    return subscribed


@pytest.mark.covers("B44", "B45", "B46")
async def test_after_30_seconds_one_delivery_decides_about_the_breaker(
    timed: Tenant, clock: FakeClock
) -> None:
    async with receiving(answers=[*[500] * 6, 200]) as receiver:
        subscribed = await opened_breaker(timed, clock, receiver.url)
        clock.advance(30 * SECOND - MILLISECOND)
        assert (await breaker_of(timed, subscribed))[0] == "open"
        clock.advance(MILLISECOND)
        assert (await breaker_of(timed, subscribed))[0] == "half_open"

        await deliver_one(timed, clock)
        assert (await breaker_of(timed, subscribed))[0] == "open"
        clock.advance(30 * SECOND - MILLISECOND)
        assert (await breaker_of(timed, subscribed))[0] == "open"
        clock.advance(MILLISECOND)

        assert await deliver_one(timed, clock) == "delivered"
        assert await breaker_of(timed, subscribed) == ("closed", 0)
    assert len(receiver.requests) == 7


@pytest.mark.covers("B45", "B47")
async def test_a_half_open_breaker_lets_three_deliveries_through(
    timed: Tenant, clock: FakeClock
) -> None:
    is_answered = asyncio.Event()
    async with receiving(answers=[*[500] * 5, Reply(after=is_answered)]) as receiver:
        subscribed = await opened_breaker(timed, clock, receiver.url)
        clock.advance(30 * SECOND)

        async with asyncio.TaskGroup() as group:
            for number in range(1, 4):
                spawn(group, deliver_one(timed, clock))
                await receiver.wait_for(5 + number)
            event = await timed.send()
            await run_due(timed.penstock, clock)

            shown = await timed.show(event["id"])
            assert (shown["status"], shown["last_error"]) == ("retrying", "circuit_open")
            assert len(receiver.requests) == 8
            is_answered.set()

        assert await breaker_of(timed, subscribed) == ("closed", 0)


# ------------------------------------------------------------------------------ the semaphore


class Forgetful:
    """A gate that is never told how a call ended, as when workers are killed in their calls."""

    def __init__(self, inner: LocalGate) -> None:
        self.inner = inner

    async def enter(self, key: str, rules: Rules) -> Permit | Refusal:
        return await self.inner.enter(key, rules)

    async def leave(
        self, permit: Permit, rules: Rules, *, verdict: Verdict, cooldown: timedelta | None = None
    ) -> None:
        pass

    async def inspect(self, key: str) -> KeyStatus:
        return await self.inner.inspect(key)


@pytest.fixture
async def abandoned(dsn: str, gate: LocalGate) -> AsyncGenerator[Tenant]:
    """A tenant whose deliveries keep their slots until these free themselves."""
    async with (
        opened_with(dsn, gate=Forgetful(gate)) as app,
        called(app, create_app(app)) as clients,
    ):
        yield make_tenant(clients.admin, app)


@pytest.mark.covers("B53", "B70")
@pytest.mark.parametrize(
    ("timeout_seconds", "permit_seconds"), [(None, 30), (10, 30), (25, 30), (26, 31), (60, 65)]
)
async def test_a_permit_expires_only_after_its_call_has_timed_out(
    abandoned: Tenant, clock: FakeClock, *, timeout_seconds: int | None, permit_seconds: int
) -> None:
    more = {} if timeout_seconds is None else {"timeout_seconds": timeout_seconds}
    async with receiving() as receiver:
        await abandoned.subscribe(receiver.url, concurrency=1, rate_limit=None, **more)
        assert await deliver_one(abandoned, clock) == "delivered"

        clock.advance(permit_seconds * SECOND - MILLISECOND)
        assert await deliver_one(abandoned, clock) == "retrying"
        clock.advance(MILLISECOND)
        event = await abandoned.send()
        await run_due(abandoned.penstock, clock)

        assert (await abandoned.show(event["id"]))["status"] == "delivered"
    assert len(receiver.requests) == 2


@pytest.fixture
def redis_away(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """A Redis that is configured and not there."""
    monkeypatch.setenv("PENSTOCK_REDIS_URL", f"redis://127.0.0.1:{free_port()}/0")
    read_once.cache_clear()
    yield
    read_once.cache_clear()


@pytest.mark.covers("B54")
@pytest.mark.usefixtures("redis_away")
async def test_without_redis_a_subscription_still_has_its_semaphore(dsn: str) -> None:
    is_answered = asyncio.Event()
    async with (
        Penstock(dsn=dsn) as app,
        called(app, create_app(app)) as clients,
        working(app),
        receiving(answers=[Reply(after=is_answered)]) as receiver,
    ):
        tenant = make_tenant(clients.admin, app)
        await tenant.subscribe(receiver.url, concurrency=2)
        events = [await tenant.send() for _ in range(4)]
        await receiver.wait_for(2)
        await tenant.until_shown(events[3]["id"], lambda event: event["status"] == "retrying")

        assert len(receiver.requests) == 2
        is_answered.set()
        for event in events:
            await tenant.until(event["id"], "delivered")
    assert app.meter.counters["gate_fallbacks_total", ()] == 1


# --------------------------------------------------------------------------------- the backoff


@pytest.mark.covers("B31", "B34", "B62")
async def test_the_next_attempt_is_at_the_failed_one_plus_the_delay(
    own: Tenant, clock: FakeClock
) -> None:
    async with receiving(answers=[429]) as receiver:
        await own.subscribe(receiver.url)
        event = await own.send()
        for mean in (1, 2, 4, 8):
            tried_at = clock.now()
            await run_due(own.penstock, clock)
            next_at = instant_of(await own.show(event["id"]))
            assert 0.9 * mean * SECOND <= next_at - tried_at <= 1.1 * mean * SECOND
            clock.advance(next_at - tried_at)

    assert len(receiver.requests) == 4


@pytest.mark.covers("B32", "B33", "B36")
async def test_no_delay_is_longer_than_an_hour_whatever_the_jitter(
    own: Tenant, clock: FakeClock
) -> None:
    """The formula says an hour, and half of the draws would add to it."""
    async with own.penstock.pool.acquire() as db:
        await set_lane(db, "penstock.webhooks", who="test", backoff_base=HOUR)
    async with receiving(answers=[429]) as receiver:
        await own.subscribe(receiver.url, rate_limit=None)
        events = [await own.send() for _ in range(40)]
        tried_at = clock.now()
        await run_due(own.penstock, clock)

    shown = [await own.show(event["id"]) for event in events]
    delays = [instant_of(each) - tried_at for each in shown]
    assert len(receiver.requests) == 40
    assert 0.9 * HOUR <= min(delays) < HOUR
    assert max(delays) == HOUR


def instant_of(event: dict[str, str]) -> datetime:
    return datetime.fromisoformat(event["next_attempt_at"])


# -------------------------------------------------------------------------------- the requests


@pytest.mark.covers("B10")
async def test_a_fault_in_a_request_is_a_500_with_its_id_and_the_server_goes_on(
    own: Tenant, admin: AsyncClient
) -> None:
    headers = {"X-Request-Id": "r-7"}
    body = {"type": "order.paid", "data": 1}
    await own.penstock.pool.execute("ALTER TABLE penstock.webhook_event RENAME TO gone")

    broken = await admin.post("/events", json=body, headers=headers)
    await own.penstock.pool.execute("ALTER TABLE penstock.gone RENAME TO webhook_event")
    sound = await admin.post("/events", json=body)

    problem(broken, 500, "internal")
    assert broken.headers["x-request-id"] == "r-7"
    assert sound.status_code == 202
    assert len(sound.headers["x-request-id"]) == 32
