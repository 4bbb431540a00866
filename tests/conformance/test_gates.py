"""The behaviour of every gate, local or shared."""

from datetime import timedelta
from heapq import heappop, heappush
from itertools import count, pairwise

import pytest

from penstock.base.clock import FakeClock
from penstock.limits.gate import Gate, KeyStatus, Permit, Rules, Verdict
from tests.conformance.scene import KEY, MILLISECOND, RULES, SECOND, call, enter, refused

HALF = 0.5  # The random number of the gates in these tests.


# The breaker.


@pytest.mark.covers("B43")
async def test_five_failures_in_a_row_open_the_breaker(gate: Gate) -> None:
    await call(gate, "failing", times=4)
    assert (await gate.inspect(KEY)).breaker == "closed"

    await call(gate, "failing")

    assert (await gate.inspect(KEY)).breaker == "open"
    await refused(gate, "circuit_open")


@pytest.mark.covers("B48")
async def test_a_success_resets_the_count_of_failures(gate: Gate) -> None:
    await call(gate, "failing", times=4)

    await call(gate, "alive")

    assert (await gate.inspect(KEY)).failures == 0
    await call(gate, "failing", times=4)
    await enter(gate)


@pytest.mark.covers("B44")
async def test_an_open_breaker_is_half_open_after_30_seconds(gate: Gate, clock: FakeClock) -> None:
    await call(gate, "failing", times=5)

    clock.advance(30 * SECOND - MILLISECOND)
    await refused(gate, "circuit_open")
    clock.advance(MILLISECOND)

    assert (await gate.inspect(KEY)).breaker == "half_open"
    assert (await enter(gate)).is_probe


@pytest.mark.covers("B45")
async def test_one_success_closes_a_half_open_breaker(gate: Gate, clock: FakeClock) -> None:
    await trip(gate, clock)

    await call(gate, "alive")

    assert (await gate.inspect(KEY)).breaker == "closed"
    assert not (await enter(gate)).is_probe
    await call(gate, "failing", times=4)
    assert (await gate.inspect(KEY)).breaker == "closed", "the count started at zero"


@pytest.mark.covers("B46")
async def test_a_failing_probe_opens_the_breaker_again_for_the_full_time(
    gate: Gate, clock: FakeClock
) -> None:
    await trip(gate, clock)
    clock.advance(7 * SECOND)

    await call(gate, "failing")

    clock.advance(30 * SECOND - MILLISECOND)
    await refused(gate, "circuit_open")
    clock.advance(MILLISECOND)
    assert (await enter(gate)).is_probe


@pytest.mark.covers("B47")
async def test_a_half_open_breaker_admits_three_probes(gate: Gate, clock: FakeClock) -> None:
    await trip(gate, clock)

    for _ in range(3):
        assert (await enter(gate)).is_probe

    after = await refused(gate, "circuit_open")
    assert SECOND <= after <= 2.1 * SECOND, "a probe will have its response soon"


async def test_a_probe_whose_worker_died_expires(gate: Gate, clock: FakeClock) -> None:
    """Otherwise three dead workers would block an endpoint for ever."""
    await trip(gate, clock)
    lost = [await enter(gate) for _ in range(3)]

    clock.advance(RULES.permit_ttl - MILLISECOND)
    await refused(gate, "circuit_open")
    clock.advance(MILLISECOND)

    probe = await enter(gate)
    await gate.leave(lost[0], RULES, verdict="failing")
    assert (await gate.inspect(KEY)).breaker == "half_open", "an expired probe decides nothing"
    await gate.leave(probe, RULES, verdict="alive")
    assert (await gate.inspect(KEY)).breaker == "closed"


@pytest.mark.parametrize("verdict", ["alive", "failing"])
async def test_the_verdict_of_an_expired_probe_is_ignored(
    gate: Gate, clock: FakeClock, verdict: Verdict
) -> None:
    await trip(gate, clock)
    probe = await enter(gate)
    clock.advance(RULES.permit_ttl)

    await gate.leave(probe, RULES, verdict=verdict)

    assert (await gate.inspect(KEY)).breaker == "half_open"


async def test_a_cancelled_probe_is_replaced_by_another(gate: Gate, clock: FakeClock) -> None:
    await trip(gate, clock)
    probes = [await enter(gate) for _ in range(3)]

    await gate.leave(probes[1], RULES, verdict="unknown")

    assert (await enter(gate)).is_probe
    await refused(gate, "circuit_open")


@pytest.mark.parametrize("verdict", ["alive", "failing"])
async def test_earlier_calls_do_not_decide_a_half_open_breaker(
    gate: Gate, clock: FakeClock, verdict: Verdict
) -> None:
    """They were sent before the breaker opened; only probes show the present state."""
    early = [await enter(gate) for _ in range(10)]
    await trip(gate, clock)

    for each in early:
        await gate.leave(each, RULES, verdict=verdict)

    assert (await gate.inspect(KEY)).breaker == "half_open"
    for _ in range(3):
        assert (await enter(gate)).is_probe


@pytest.mark.parametrize("verdict", ["alive", "failing"])
async def test_earlier_calls_do_not_change_an_open_breaker(
    gate: Gate, clock: FakeClock, verdict: Verdict
) -> None:
    """Calls that end while it is open neither extend nor shorten that time."""
    early = [await enter(gate) for _ in range(10)]
    await call(gate, "failing", times=5)
    clock.advance(20 * SECOND)

    for each in early:
        await gate.leave(each, RULES, verdict=verdict)

    clock.advance(10 * SECOND - MILLISECOND)
    await refused(gate, "circuit_open")
    clock.advance(MILLISECOND)
    await enter(gate)


async def test_earlier_failures_do_not_open_a_breaker_that_has_just_closed(
    gate: Gate, clock: FakeClock
) -> None:
    early = [await enter(gate) for _ in range(10)]
    await trip(gate, clock)
    await call(gate, "alive")

    for each in early:
        await gate.leave(each, RULES, verdict="failing")

    assert await gate.inspect(KEY) == KeyStatus()


async def test_an_earlier_success_does_not_reset_new_failures(gate: Gate, clock: FakeClock) -> None:
    early = await enter(gate)
    await trip(gate, clock)
    await call(gate, "alive")
    await call(gate, "failing", times=4)

    await gate.leave(early, RULES, verdict="alive")

    assert (await gate.inspect(KEY)).failures == 4


async def test_a_second_probe_does_not_undo_the_decision_of_the_first(
    gate: Gate, clock: FakeClock
) -> None:
    await trip(gate, clock)
    first, second, third = [await enter(gate) for _ in range(3)]

    await gate.leave(first, RULES, verdict="alive")
    await gate.leave(second, RULES, verdict="failing")

    assert await gate.inspect(KEY) == KeyStatus(permits_in_use=1)
    await gate.leave(third, RULES, verdict="unknown")


async def test_a_probe_does_not_decide_a_later_half_open_state(
    gate: Gate, clock: FakeClock
) -> None:
    """With a long permit_ttl a slow probe can outlive the state that admitted it."""
    rules = Rules(permit_ttl=timedelta(minutes=5))
    await trip(gate, clock, rules)
    slow = [await enter(gate, rules), await enter(gate, rules)]
    await call(gate, "failing", rules)
    clock.advance(rules.open_for)

    await gate.leave(slow[0], rules, verdict="alive")
    await gate.leave(slow[1], rules, verdict="failing")

    assert (await gate.inspect(KEY)).breaker == "half_open"
    for _ in range(3):
        assert (await enter(gate, rules)).is_probe


async def test_only_failing_calls_count_against_the_endpoint(gate: Gate) -> None:
    """A 4xx comes from a healthy endpoint, and a cancelled call has no response."""
    await call(gate, "failing", times=4)

    await call(gate, "unknown", times=10)
    assert (await gate.inspect(KEY)).failures == 4
    await call(gate, "alive")

    assert (await gate.inspect(KEY)).failures == 0


async def test_old_failures_are_forgotten(gate: Gate, clock: FakeClock) -> None:
    await call(gate, "failing", times=4)

    clock.advance(timedelta(hours=1))
    await call(gate, "failing")

    assert (await gate.inspect(KEY)).failures == 1


async def test_a_breaker_that_is_unused_for_an_hour_is_closed(gate: Gate, clock: FakeClock) -> None:
    await call(gate, "failing", times=5)

    clock.advance(RULES.open_for + timedelta(hours=1))

    assert not (await enter(gate)).is_probe
    assert await gate.inspect(KEY) == KeyStatus(permits_in_use=1)


async def test_an_open_breaker_refuses_until_it_is_half_open(gate: Gate, clock: FakeClock) -> None:
    """A random part of a second and 10 % is added, so that not all calls come back at once."""
    await call(gate, "failing", times=5)
    clock.advance(10 * SECOND)

    after = await refused(gate, "circuit_open")

    assert after == 20 * SECOND + HALF * (1 * SECOND + 2 * SECOND)


async def test_changed_rules_apply_at_once(gate: Gate, clock: FakeClock) -> None:
    """They need no restart, and no call waits for an instant set by the earlier rules."""
    patient = Rules(open_for=timedelta(hours=1))
    await call(gate, "failing", patient, times=5)
    clock.advance(SECOND)
    await refused(gate, "circuit_open", patient)

    assert (await enter(gate, Rules(open_for=10 * SECOND))).is_probe


# The rate.


async def test_instants_are_exactly_one_interval_apart(gate: Gate) -> None:
    """No burst is allowed, and instants within a quarter of a second are given at once."""
    rules = Rules(rate=100)

    waits = [(await enter(gate, rules)).wait for _ in range(26)]

    assert waits == [n / 100 for n in range(26)]
    await refused(gate, "rate_limited", rules)


async def test_unused_rate_is_not_saved_up(gate: Gate, clock: FakeClock) -> None:
    rules = Rules(rate=10)
    await enter(gate, rules)

    clock.advance(timedelta(minutes=1))

    assert [(await enter(gate, rules)).wait for _ in range(3)] == [0, 0.1, 0.2]


async def test_a_fractional_interval_is_rounded_up(gate: Gate, clock: FakeClock) -> None:
    """A third of a second is 333,333.3 microseconds."""
    rules = Rules(rate=3)
    starts: list[int] = []
    for _ in range(100):
        clock.advance(300 * MILLISECOND)
        answer = await gate.enter(KEY, rules)
        if isinstance(answer, Permit):
            starts.append(answer.entered_at + round(answer.wait * 1_000_000))

    assert min(later - earlier for earlier, later in pairwise(starts)) == 333_334
    assert len(starts) == pytest.approx(90, abs=1)


async def test_each_key_has_its_own_rate(gate: Gate) -> None:
    slow, fast = Rules(rate=1), Rules(rate=1000)

    await enter(gate, slow, key="slow")
    waits = [(await enter(gate, fast, key="fast")).wait for _ in range(10)]

    assert waits == [n / 1000 for n in range(10)]
    await refused(gate, "rate_limited", slow, key="slow")


async def test_a_call_refused_by_the_semaphore_uses_no_instant_of_the_rate(
    gate: Gate, clock: FakeClock
) -> None:
    rules = Rules(rate=10, concurrency=1)
    holder = await enter(gate, rules)
    for _ in range(5):
        await refused(gate, "concurrency_limited", rules)

    await gate.leave(holder, rules, verdict="alive")

    assert (await enter(gate, rules)).wait == 0.1
    assert clock.now().hour == 12, "no time has passed"


async def test_a_new_rate_applies_at_once(gate: Gate) -> None:
    await enter(gate, Rules(rate=0.1))
    await refused(gate, "rate_limited", Rules(rate=0.1))

    assert (await enter(gate, Rules(rate=10))).wait == 0.1


async def test_a_clock_that_is_set_back_blocks_no_call(gate: Gate, clock: FakeClock) -> None:
    """Otherwise all calls would wait until the clock has caught up."""
    rules = Rules(rate=10)
    await enter(gate, rules)
    await call(gate, "failing", RULES, key="other", times=5)

    clock.advance(timedelta(hours=-5))

    assert (await enter(gate, rules)).wait == 0
    assert (await enter(gate, rules)).wait == 0.1
    assert (await enter(gate, RULES, key="other")).is_probe


async def test_calls_refused_by_the_rate_are_queued(gate: Gate) -> None:
    """One interval apart, and 125 ms early, so that a call is not late for its instant."""
    rules = Rules(rate=10)
    for _ in range(3):
        await enter(gate, rules)

    waits = [await refused(gate, "rate_limited", rules) for _ in range(4)]

    early = 125 * MILLISECOND
    assert waits == [n * 100 * MILLISECOND - early for n in (3, 4, 5, 6)]


async def test_the_rate_queue_is_ten_minutes_long_at_most(gate: Gate) -> None:
    """Further calls come back at random in its second half."""
    rules = Rules(rate=0.1)
    await enter(gate, rules)

    waits = [await refused(gate, "rate_limited", rules) for _ in range(100)]

    assert max(waits) < timedelta(minutes=10)
    assert waits[-1] == waits[-2] == timedelta(minutes=7.5) - 125 * MILLISECOND


async def test_a_queue_whose_calls_do_not_come_back_is_dropped(
    gate: Gate, clock: FakeClock
) -> None:
    """They were cancelled, and later calls must not wait for them."""
    rules = Rules(rate=10)
    for _ in range(3):
        await enter(gate, rules)
    waits = [await refused(gate, "rate_limited", rules) for _ in range(1000)]
    assert waits[-1] > timedelta(seconds=90)

    clock.advance(2 * SECOND)
    for _ in range(3):
        await enter(gate, rules)

    assert await refused(gate, "rate_limited", rules) < SECOND


async def test_a_thousand_callers_use_the_whole_rate_and_are_refused_about_once(
    gate: Gate, clock: FakeClock
) -> None:
    """Each refusal costs a round trip to the database."""
    rules = Rules(rate=100, concurrency=10_000)

    starts, refusals = await run_calls(gate, clock, rules, callers=1000, each=timedelta(0))

    assert most_in_a_second(starts) <= 100
    assert max(starts) - min(starts) < 10.2, "10 s at 100 a second"
    assert refusals < 1.1 * 1000


# The semaphore.


@pytest.mark.covers("B52")
async def test_at_most_a_hundred_calls_are_in_progress(gate: Gate) -> None:
    held = [await enter(gate) for _ in range(100)]
    await refused(gate, "concurrency_limited")

    await gate.leave(held[0], RULES, verdict="alive")

    assert (await gate.inspect(KEY)).permits_in_use == 99
    await enter(gate)
    await refused(gate, "concurrency_limited")


@pytest.mark.covers("B53", "B70")
async def test_the_permits_of_a_killed_worker_expire(gate: Gate, clock: FakeClock) -> None:
    """After 30 s, or `permit_ttl`, which must be longer than the HTTP timeout."""
    for rules, key in ((Rules(), "usual"), (Rules(permit_ttl=timedelta(seconds=75)), "long")):
        for _ in range(100):
            await enter(gate, rules, key=key)

        clock.advance(rules.permit_ttl - MILLISECOND)
        await refused(gate, "concurrency_limited", rules, key=key)
        clock.advance(MILLISECOND)

        await enter(gate, rules, key=key)
        assert (await gate.inspect(key)).permits_in_use == 1


async def test_the_ttl_of_a_permit_starts_at_the_instant_of_its_call(
    gate: Gate, clock: FakeClock
) -> None:
    """Otherwise a call that had to wait would lose its permit before its timeout."""
    rules = Rules(rate=5, permit_ttl=SECOND)
    await enter(gate, rules)
    assert (await enter(gate, rules)).wait == 0.2

    clock.advance(1.1 * SECOND)
    assert (await gate.inspect(KEY)).permits_in_use == 1
    clock.advance(0.1 * SECOND)

    assert (await gate.inspect(KEY)).permits_in_use == 0


async def test_returning_an_expired_permit_frees_no_other(gate: Gate, clock: FakeClock) -> None:
    rules = Rules(concurrency=1)
    stalled = await enter(gate, rules)
    clock.advance(rules.permit_ttl)
    await enter(gate, rules)

    await gate.leave(stalled, rules, verdict="alive")

    await refused(gate, "concurrency_limited", rules)


@pytest.mark.covers("B55")
@pytest.mark.parametrize("verdict", ["alive", "failing", "unknown"])
async def test_every_verdict_returns_the_permit(gate: Gate, verdict: Verdict) -> None:
    rules = Rules(concurrency=1)
    held = await enter(gate, rules)

    await gate.leave(held, rules, verdict=verdict)

    assert (await gate.inspect(KEY)).permits_in_use == 0
    await enter(gate, rules)


async def test_leaving_twice_is_harmless(gate: Gate) -> None:
    rules = Rules(concurrency=2)
    first, _ = await enter(gate, rules), await enter(gate, rules)

    await gate.leave(first, rules, verdict="alive")
    await gate.leave(first, rules, verdict="unknown")

    await enter(gate, rules)
    await refused(gate, "concurrency_limited", rules)


async def test_calls_refused_by_the_semaphore_are_queued_by_the_duration_of_calls(
    gate: Gate, clock: FakeClock
) -> None:
    """Ten calls of 2 s each, started evenly: one ends every 200 ms."""
    rules = Rules(concurrency=10)
    for _ in range(10):
        await enter(gate, rules)
        clock.advance(200 * MILLISECOND)

    waits = [await refused(gate, "concurrency_limited", rules) for _ in range(3)]

    assert waits == [200 * MILLISECOND, 400 * MILLISECOND, 600 * MILLISECOND]


async def test_no_refusal_is_shorter_than_two_milliseconds(gate: Gate) -> None:
    """Timers are not more exact."""
    rules = Rules(concurrency=1)
    await enter(gate, rules)

    assert await refused(gate, "concurrency_limited", rules) == 2 * MILLISECOND


async def test_five_hundred_callers_use_all_permits_and_are_seldom_refused(
    gate: Gate, clock: FakeClock
) -> None:
    rules = Rules(concurrency=10)

    starts, refusals = await run_calls(
        gate, clock, rules, callers=500, each=timedelta(milliseconds=200)
    )

    assert max(starts) - min(starts) < 15, "10 s if no permit was ever unused"
    assert refusals < 3 * 500


# The cooldown.


async def test_a_cooldown_closes_the_whole_endpoint(gate: Gate, clock: FakeClock) -> None:
    permit = await enter(gate)
    await gate.leave(permit, RULES, verdict="alive", cooldown=timedelta(minutes=1))

    after = await refused(gate, "cooldown")
    assert after == 60 * SECOND + HALF * (1 * SECOND + 6 * SECOND)
    assert (await gate.inspect(KEY)).cooldown_until == clock.now() + timedelta(minutes=1)
    await enter(gate, key="another")
    clock.advance(timedelta(minutes=1) - MILLISECOND)
    await refused(gate, "cooldown")
    clock.advance(MILLISECOND)

    await enter(gate)
    assert (await gate.inspect(KEY)).cooldown_until is None


async def test_a_cooldown_never_shortens_another(gate: Gate, clock: FakeClock) -> None:
    """Of two different Retry-After values, the longer one holds."""
    first, second = await enter(gate), await enter(gate)
    await gate.leave(first, RULES, verdict="alive", cooldown=60 * SECOND)

    await gate.leave(second, RULES, verdict="alive", cooldown=5 * SECOND)

    clock.advance(59 * SECOND)
    await refused(gate, "cooldown")


async def test_a_cooldown_lasts_a_day_at_most(gate: Gate, clock: FakeClock) -> None:
    """Retry-After is input from outside."""
    permit = await enter(gate)
    await gate.leave(permit, RULES, verdict="alive", cooldown=timedelta(days=3650))

    clock.advance(timedelta(days=1))

    await enter(gate)


async def test_an_open_breaker_refuses_until_the_cooldown_has_ended(
    gate: Gate, clock: FakeClock
) -> None:
    """A 503 with Retry-After is a failure and starts a cooldown."""
    permit = await enter(gate)
    await call(gate, "failing", times=4)
    await gate.leave(permit, RULES, verdict="failing", cooldown=timedelta(minutes=10))

    assert await refused(gate, "circuit_open") > timedelta(minutes=10)

    clock.advance(RULES.open_for)
    await refused(gate, "cooldown")
    assert (await gate.inspect(KEY)).breaker == "half_open", "no probe was used up"


async def test_an_unused_key_has_no_limits_in_effect(gate: Gate) -> None:
    assert await gate.inspect("nobody") == KeyStatus()


async def trip(gate: Gate, clock: FakeClock, rules: Rules = RULES) -> None:
    """Make the breaker half-open, without any probe."""
    await call(gate, "failing", rules, times=rules.failures_max)
    clock.advance(rules.open_for)


async def run_calls(
    gate: Gate, clock: FakeClock, rules: Rules, *, callers: int, each: timedelta
) -> tuple[list[float], int]:
    """Enter with all callers at once, and again when a refusal says so, a little late.

    Returns the seconds at which their calls started, and the number of refusals.
    """
    started_at = clock.now()
    numbers = count()
    events: list[tuple[timedelta, int, Permit | None]] = []
    for _ in range(callers):
        heappush(events, (timedelta(0), next(numbers), None))
    starts: list[float] = []
    refusals = 0
    while events:
        at, n, permit = heappop(events)
        clock.advance(started_at + at - clock.now())
        if permit is not None:
            await gate.leave(permit, rules, verdict="alive")
            continue
        answer = await gate.enter(KEY, rules)
        if isinstance(answer, Permit):
            starts.append(at.total_seconds() + answer.wait)
            ends = at + timedelta(seconds=answer.wait) + each
            heappush(events, (ends, next(numbers), answer))
        else:
            refusals += 1
            late = n * 7 % 60 * MILLISECOND
            heappush(events, (at + answer.after + late, next(numbers), None))
    return starts, refusals


def most_in_a_second(starts: list[float]) -> int:
    """Return the most starts in any second, wherever it begins."""
    ordered = sorted(starts)
    most = first = 0
    for last, start in enumerate(ordered):
        while start - ordered[first] >= 1 - 1e-9:
            first += 1
        most = max(most, last - first + 1)
    return most
