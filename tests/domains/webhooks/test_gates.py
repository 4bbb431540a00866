"""What holds a delivery back: breaker, cooldown, rate, semaphore, in this order, at no cost."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import msgspec
import pytest

from penstock import Snooze
from penstock.api import create_app
from penstock.base.aio import spawn
from penstock.base.clock import FakeClock
from penstock.kernel.inspect import AttemptView, read_attempts
from penstock.kernel.item import ItemId
from penstock.limits import admit
from penstock.limits.gate import KeyStatus, Permit, Refusal, Rules, Verdict
from penstock.limits.local import LocalGate
from penstock.testing import run_due, run_to_end
from tests.api.scene import called
from tests.domains.webhooks.scene import Json, Tenant, make_tenant, opened_with
from tests.fault.waiting import until
from tests.receiver import Answer, Close, Hang, Received, Reply, receiving

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


class Watched:
    """A gate that records what it is asked, and in which order."""

    def __init__(self) -> None:
        self.inner = LocalGate()
        self.told: list[str] = []
        self.cooldowns: list[timedelta | None] = []

    async def enter(self, key: str, rules: Rules) -> Permit | Refusal:
        self.told.append("enter")
        return await self.inner.enter(key, rules)

    async def leave(
        self, permit: Permit, rules: Rules, *, verdict: Verdict, cooldown: timedelta | None = None
    ) -> None:
        self.told.append(f"leave {verdict}")
        self.cooldowns.append(cooldown)
        await self.inner.leave(permit, rules, verdict=verdict, cooldown=cooldown)

    async def inspect(self, key: str) -> KeyStatus:
        return await self.inner.inspect(key)

    def write_down(self, request: Received) -> int:
        """Answer a request, as a receiver's script."""
        self.told.append(request.method)
        return 200


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.fixture
async def through(dsn: str, watched: Watched) -> AsyncGenerator[Tenant]:
    """A tenant whose deliveries pass a gate that is watched."""
    async with opened_with(dsn, gate=watched) as app, called(app, create_app(app)) as clients:
        yield make_tenant(clients.admin, app)


async def put_off(tenant: Tenant, event: Json) -> list[AttemptView]:
    """Return the attempts of an event's first delivery that were none."""
    shown = await tenant.show(event["id"])
    item_id = ItemId(shown["deliveries"][0]["item_id"])
    attempts = await read_attempts(tenant.penstock.pool, item_id)
    return [each for each in attempts if each.outcome == "snooze"]


# -------------------------------------------------------------------------------- in and out


@pytest.mark.covers("B22")
async def test_a_delivery_enters_the_gate_before_the_call_and_leaves_it_after(
    through: Tenant, watched: Watched, clock: FakeClock
) -> None:
    async with receiving(answers=watched.write_down) as receiver:
        await through.subscribe(receiver.url)
        await through.send()
        await run_due(through.penstock, clock)

    assert watched.told == ["enter", "POST", "leave alive"]


@pytest.mark.covers("B24", "B25", "B26", "B55", "B69")
@pytest.mark.parametrize(
    ("answer", "verdict", "cooldown"),
    [
        (200, "alive", None),
        (Reply(200, headers={"Retry-After": "60"}), "alive", None),
        (301, "alive", None),
        (404, "alive", None),
        (410, "alive", None),
        (429, "alive", None),
        (Reply(429, headers={"Retry-After": "60"}), "alive", timedelta(minutes=1)),
        (503, "failing", None),
        (Reply(503, headers={"Retry-After": "60"}), "failing", timedelta(minutes=1)),
        (Close(), "failing", None),
        (Hang(), "failing", None),
    ],
)
async def test_every_ending_returns_the_permit_with_a_verdict(
    through: Tenant,
    watched: Watched,
    clock: FakeClock,
    *,
    answer: Answer | int,
    verdict: str,
    cooldown: timedelta | None,
) -> None:
    async with receiving(answers=[answer]) as receiver:
        subscribed = await through.subscribe(receiver.url, timeout_seconds=0.1)
        await through.send()
        await run_due(through.penstock, clock)

    assert watched.told == ["enter", f"leave {verdict}"]
    assert watched.cooldowns == [cooldown]
    assert (await watched.inspect(subscribed.id)).permits_in_use == 0


async def test_a_delivery_that_is_cut_off_returns_its_permit_without_a_verdict(
    through: Tenant, watched: Watched, clock: FakeClock
) -> None:
    """A worker that stops knows nothing about the endpoint."""
    async with receiving(answers=[Hang()]) as receiver:
        subscribed = await through.subscribe(receiver.url)
        await through.send()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(run_due(through.penstock, clock))
            await receiver.wait_for(1)
            task.cancel()

    assert watched.told == ["enter", "leave unknown"]
    status = await watched.inspect(subscribed.id)
    assert (status.permits_in_use, status.failures) == (0, 0)


@pytest.mark.covers("B19")
async def test_a_subscription_that_is_not_active_is_not_asked_for_at_the_gate(
    through: Tenant, watched: Watched, clock: FakeClock
) -> None:
    subscribed = await through.subscribe()
    await through.send()
    await through.change(subscribed, state="paused")

    await run_due(through.penstock, clock)

    assert watched.told == []


# ------------------------------------------------------------------------------ the four gates


@pytest.mark.covers("B28")
async def test_an_open_breaker_lets_nothing_through_and_costs_no_attempt(
    timed: Tenant, clock: FakeClock
) -> None:
    async with receiving(answers=[*[500] * 5, 200]) as receiver:
        subscribed = await timed.subscribe(receiver.url, retry_schedule_seconds=[3600])
        for _ in range(5):
            await timed.send()
        await run_due(timed.penstock, clock)
        assert (await timed.endpoint_status(subscribed))["breaker"] == "open"
        event = await timed.send()

        (attempted,) = await run_due(timed.penstock, clock)

        assert isinstance(attempted.outcome, Snooze)
        assert len(receiver.requests) == 5
        shown = await timed.show(event["id"])
        assert (shown["status"], shown["attempts"]) == ("retrying", 0)
        assert shown["last_error"] == "circuit_open"
        assert await timed.attempts(event["id"]) == []

        clock.advance(35 * SECOND)
        assert (await timed.endpoint_status(subscribed))["breaker"] == "half_open"
        await run_due(timed.penstock, clock)
        shown = await timed.show(event["id"])
        assert (shown["status"], shown["attempts"]) == ("delivered", 1)
        assert (await timed.endpoint_status(subscribed))["breaker"] == "closed"
    (attempt,) = await timed.attempts(event["id"])
    assert attempt["attempt_number"] == 1


@pytest.mark.covers("B67", "B51")
async def test_above_its_rate_a_subscription_waits_at_no_cost(
    timed: Tenant, clock: FakeClock
) -> None:
    async with receiving() as receiver:
        await timed.subscribe(receiver.url, rate_limit=1, retry_schedule_seconds=[])
        events = [await timed.send() for _ in range(3)]
        await run_due(timed.penstock, clock)
        assert len(receiver.requests) == 1
        waiting = [await timed.show(event["id"]) for event in events[1:]]

        ran = await run_to_end(timed.penstock, clock)

    for shown in waiting:
        assert (shown["status"], shown["attempts"]) == ("retrying", 0)
        assert shown["last_error"] == "rate_limited"
    assert len(receiver.requests) == 3
    for event in events:
        shown = await timed.show(event["id"])
        assert (shown["status"], shown["attempts"]) == ("delivered", 1)
    done_at = [each.at for each in ran if not isinstance(each.outcome, Snooze)]
    assert done_at[1] - done_at[0] >= 0.74 * SECOND


@pytest.mark.covers("B66", "B67")
async def test_the_rate_is_each_subscriptions_own(timed: Tenant, clock: FakeClock) -> None:
    async with receiving() as slow, receiving() as fast:
        await timed.subscribe(slow.url, rate_limit=0.1)
        await timed.subscribe(fast.url, rate_limit=None)
        for _ in range(5):
            await timed.send()
        await run_due(timed.penstock, clock)

    assert (len(slow.requests), len(fast.requests)) == (1, 5)


@pytest.mark.covers("B27", "B68")
async def test_a_full_semaphore_puts_off_at_no_cost(
    timed: Tenant, gate: LocalGate, clock: FakeClock
) -> None:
    async with receiving() as receiver:
        subscribed = await timed.subscribe(receiver.url, concurrency=1, retry_schedule_seconds=[])
        taken = await gate.enter(subscribed.id, Rules(concurrency=1))
        assert isinstance(taken, Permit)
        event = await timed.send()

        await run_due(timed.penstock, clock)

        shown = await timed.show(event["id"])
        assert (shown["status"], shown["attempts"]) == ("retrying", 0)
        assert shown["last_error"] == "concurrency_limited"
        assert receiver.requests == []
        assert (await timed.endpoint_status(subscribed))["calls"] == 1
        await gate.leave(taken, Rules(concurrency=1), verdict="alive")
        clock.advance(HOUR)
        await run_due(timed.penstock, clock)
        shown = await timed.show(event["id"])
        assert (shown["status"], shown["attempts"]) == ("delivered", 1)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let deliveries wait at a full gate for as long as a test takes."""
    monkeypatch.setattr(admit, "PERMIT_WAIT_MAX", HOUR)


@pytest.mark.usefixtures("patient")
async def test_a_permit_within_50_ms_causes_no_snooze(
    through: Tenant, watched: Watched, clock: FakeClock
) -> None:
    """To come back by way of the database costs as much as a delivery."""
    rules = Rules(concurrency=1)

    async def has_asked_again() -> bool:
        return watched.told.count("enter") > 3

    async with receiving() as receiver:
        subscribed = await through.subscribe(receiver.url, concurrency=1)
        taken = await watched.enter(subscribed.id, rules)
        assert isinstance(taken, Permit)
        event = await through.send()

        async with asyncio.TaskGroup() as group:
            spawn(group, run_due(through.penstock, clock))
            await until(has_asked_again, within=30)
            assert receiver.requests == []
            await watched.leave(taken, rules, verdict="alive")

    assert (await through.show(event["id"]))["status"] == "delivered"
    assert await put_off(through, event) == []


@pytest.mark.covers("B27", "B52")
async def test_no_more_calls_are_under_way_than_a_subscription_allows(tenant: Tenant) -> None:
    answered = asyncio.Event()
    async with receiving(answers=[Reply(after=answered)]) as receiver:
        subscribed = await tenant.subscribe(receiver.url, concurrency=2)
        events = [await tenant.send() for _ in range(6)]
        await receiver.wait_for(2)
        for event in events[2:]:
            await tenant.until(event["id"], "retrying")

        assert len(receiver.requests) == 2
        assert (await tenant.endpoint_status(subscribed))["calls"] == 2
        answered.set()
        for event in events:
            shown = await tenant.until(event["id"], "delivered")
            assert shown["attempts"] == 1
    assert receiver.opened_count == 2


@pytest.mark.covers("B22")
async def test_the_breaker_is_checked_before_the_rate_and_the_rate_before_the_semaphore(
    timed: Tenant, gate: LocalGate, clock: FakeClock
) -> None:
    """Which of them refuses decides how long to stay away, so the order is part of the promise."""
    subscribed = await timed.subscribe(rate_limit=0.01, concurrency=1)
    rules = Rules(rate=0.01, concurrency=2, permit_ttl=DAY, failures_max=1, open_for=30 * SECOND)
    failing = await gate.enter(subscribed.id, rules)
    staying = await gate.enter(subscribed.id, msgspec.structs.replace(rules, rate=None))
    assert isinstance(failing, Permit)
    assert isinstance(staying, Permit)
    await gate.leave(failing, rules, verdict="failing")
    event = await timed.send()

    # All three would refuse, then the last two, then only the last.
    await run_due(timed.penstock, clock)
    clock.advance(40 * SECOND)
    await run_due(timed.penstock, clock)
    clock.advance(110 * SECOND)
    await run_due(timed.penstock, clock)

    reasons = [each.reason for each in await put_off(timed, event)]
    assert reasons == ["circuit_open", "rate_limited", "concurrency_limited"]


# ---------------------------------------------------------------------------------- Retry-After


@pytest.mark.covers("B69")
@pytest.mark.parametrize("status", [429, 503, 500, 408])
@pytest.mark.parametrize("schedule", [None, [1, 1, 1]])
async def test_an_endpoint_that_sends_retry_after_gets_a_cooldown(
    timed: Tenant, clock: FakeClock, *, status: int, schedule: list[int] | None
) -> None:
    """For the event and for all others to it; other endpoints go on."""
    throttled = Reply(status, headers={"Retry-After": "120"})
    async with receiving(answers=[throttled, 200]) as receiver, receiving() as other:
        subscribed = await timed.subscribe(
            receiver.url, "first", "second", retry_schedule_seconds=schedule
        )
        await timed.subscribe(other.url, "second")
        started_at = clock.now()
        first = await timed.send("first")
        await run_due(timed.penstock, clock)
        second = await timed.send("second")
        await run_due(timed.penstock, clock)

        assert len(receiver.requests) == 1
        assert len(other.requests) == 1
        endpoint = await timed.endpoint_status(subscribed)
        assert endpoint["cooldown_until"] == text_of(started_at + 120 * SECOND)
        shown = await timed.show(second["id"])
        assert [each["last_error"] for each in shown["deliveries"]] == ["cooldown", None]
        assert [each["attempts"] for each in shown["deliveries"]] == [0, 1]

        ran = await run_to_end(timed.penstock, clock)
    assert len(receiver.requests) == 3
    assert min(each.at for each in ran) >= started_at + 120 * SECOND
    assert (await timed.show(first["id"]))["attempts"] == 2
    assert (await timed.show(second["id"]))["status"] == "delivered"


@pytest.mark.covers("B69")
async def test_a_cooldown_may_be_given_as_a_date(timed: Tenant, clock: FakeClock) -> None:
    ends_at = datetime.now(UTC) + HOUR
    answer = Reply(429, headers={"Retry-After": format_datetime(ends_at, usegmt=True)})
    async with receiving(answers=[answer]) as receiver:
        await timed.subscribe(receiver.url)
        event = await timed.send()
        started_at = clock.now()
        await run_due(timed.penstock, clock)

    shown = await timed.show(event["id"])
    wait = datetime.fromisoformat(shown["next_attempt_at"]) - started_at
    assert HOUR - 60 * SECOND < wait <= HOUR


@pytest.mark.covers("B69")
@pytest.mark.parametrize("value", ["86401", "999999999999999999999", "31536000"])
async def test_a_cooldown_lasts_a_day_at_most(timed: Tenant, clock: FakeClock, value: str) -> None:
    """A slip must not stop an endpoint for a year."""
    async with receiving(answers=[Reply(503, headers={"Retry-After": value}), 200]) as receiver:
        await timed.subscribe(receiver.url)
        event = await timed.send()
        started_at = clock.now()
        await run_due(timed.penstock, clock)
        shown = await timed.show(event["id"])
        await run_to_end(timed.penstock, clock)

    assert shown["next_attempt_at"] == text_of(started_at + DAY)
    assert (await timed.show(event["id"]))["status"] == "delivered"


@pytest.mark.parametrize("value", ["soon", "-5", "1.5", "", "٣"])
async def test_an_unreadable_retry_after_sets_no_cooldown(
    timed: Tenant, clock: FakeClock, value: str
) -> None:
    answer = Reply(503, headers={"Retry-After": value.encode().decode("latin-1")})
    async with receiving(answers=[answer]) as receiver:
        subscribed = await timed.subscribe(receiver.url, retry_schedule_seconds=[100])
        event = await timed.send()
        started_at = clock.now()
        await run_due(timed.penstock, clock)

    assert (await timed.endpoint_status(subscribed))["cooldown_until"] is None
    shown = await timed.show(event["id"])
    assert datetime.fromisoformat(shown["next_attempt_at"]) >= started_at + 90 * SECOND


def text_of(at: object) -> str:
    return str(at).replace(" ", "T").replace("+00:00", "Z")
