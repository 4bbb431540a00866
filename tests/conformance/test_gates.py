"""What every gate promises, whether it is alone or shared."""

from datetime import timedelta
from heapq import heappop, heappush
from itertools import count, pairwise

import pytest

from penstock.base.clock import FakeClock
from penstock.limits.gate import Condition, Gate, Pass, Rules, Verdict
from tests.conformance.scene import KEY, MILLISECOND, RULES, SECOND, call, let_in, refused

HALF = 0.5  # The chance that the gates of these tests draw.


# The breaker.


@pytest.mark.covers("B43")
async def test_five_failures_in_a_row_open_the_breaker(gate: Gate) -> None:
    await call(gate, "failing", times=4)
    assert (await gate.inspect(KEY)).breaker == "closed"

    await call(gate, "failing")

    assert (await gate.inspect(KEY)).breaker == "open"
    await refused(gate, "circuit_open")


@pytest.mark.covers("B48")
async def test_a_success_sets_the_count_of_failures_to_zero(gate: Gate) -> None:
    await call(gate, "failing", times=4)

    await call(gate, "alive")

    assert (await gate.inspect(KEY)).failures == 0
    await call(gate, "failing", times=4)
    await let_in(gate)


@pytest.mark.covers("B44")
async def test_an_open_breaker_is_half_open_after_30_seconds(gate: Gate, clock: FakeClock) -> None:
    await call(gate, "failing", times=5)

    clock.advance(30 * SECOND - MILLISECOND)
    await refused(gate, "circuit_open")
    clock.advance(MILLISECOND)

    assert (await gate.inspect(KEY)).breaker == "half_open"
    assert (await let_in(gate)).is_probe


@pytest.mark.covers("B45")
async def test_one_success_closes_a_half_open_breaker(gate: Gate, clock: FakeClock) -> None:
    await trip(gate, clock)

    await call(gate, "alive")

    assert (await gate.inspect(KEY)).breaker == "closed"
    assert not (await let_in(gate)).is_probe
    await call(gate, "failing", times=4)
    assert (await gate.inspect(KEY)).breaker == "closed", "the count began at zero"


@pytest.mark.covers("B46")
async def test_a_failing_probe_opens_it_again_for_the_full_time(
    gate: Gate, clock: FakeClock
) -> None:
    await trip(gate, clock)
    clock.advance(7 * SECOND)

    await call(gate, "failing")

    clock.advance(30 * SECOND - MILLISECOND)
    await refused(gate, "circuit_open")
    clock.advance(MILLISECOND)
    assert (await let_in(gate)).is_probe


@pytest.mark.covers("B47")
async def test_a_half_open_breaker_lets_three_through(gate: Gate, clock: FakeClock) -> None:
    await trip(gate, clock)

    for _ in range(3):
        assert (await let_in(gate)).is_probe

    after = await refused(gate, "circuit_open")
    assert SECOND <= after <= 2.1 * SECOND, "the answer of a probe is near"


async def test_a_probe_whose_worker_died_makes_room_for_another(
    gate: Gate, clock: FakeClock
) -> None:
    """Else three dead workers would close an endpoint for ever."""
    await trip(gate, clock)
    lost = [await let_in(gate) for _ in range(3)]

    clock.advance(RULES.slot_ttl - MILLISECOND)
    await refused(gate, "circuit_open")
    clock.advance(MILLISECOND)

    probe = await let_in(gate)
    await gate.leave(lost[0], RULES, verdict="failing")
    assert (await gate.inspect(KEY)).breaker == "half_open", "it has lost its say"
    await gate.leave(probe, RULES, verdict="alive")
    assert (await gate.inspect(KEY)).breaker == "closed"


@pytest.mark.parametrize("verdict", ["alive", "failing"])
async def test_a_probe_that_comes_too_late_has_lost_its_say(
    gate: Gate, clock: FakeClock, verdict: Verdict
) -> None:
    await trip(gate, clock)
    probe = await let_in(gate)
    clock.advance(RULES.slot_ttl)

    await gate.leave(probe, RULES, verdict=verdict)

    assert (await gate.inspect(KEY)).breaker == "half_open"


async def test_a_cancelled_probe_makes_room_for_another(gate: Gate, clock: FakeClock) -> None:
    await trip(gate, clock)
    probes = [await let_in(gate) for _ in range(3)]

    await gate.leave(probes[1], RULES, verdict="unknown")

    assert (await let_in(gate)).is_probe
    await refused(gate, "circuit_open")


@pytest.mark.parametrize("verdict", ["alive", "failing"])
async def test_calls_from_before_do_not_decide_a_half_open_breaker(
    gate: Gate, clock: FakeClock, verdict: Verdict
) -> None:
    """They were sent before the breaker opened; only a probe has seen the endpoint since."""
    early = [await let_in(gate) for _ in range(10)]
    await trip(gate, clock)

    for each in early:
        await gate.leave(each, RULES, verdict=verdict)

    assert (await gate.inspect(KEY)).breaker == "half_open"
    for _ in range(3):
        assert (await let_in(gate)).is_probe


@pytest.mark.parametrize("verdict", ["alive", "failing"])
async def test_calls_from_before_do_not_disturb_an_open_breaker(
    gate: Gate, clock: FakeClock, verdict: Verdict
) -> None:
    """Those that end in the meantime neither lengthen nor shorten the pause."""
    early = [await let_in(gate) for _ in range(10)]
    await call(gate, "failing", times=5)
    clock.advance(20 * SECOND)

    for each in early:
        await gate.leave(each, RULES, verdict=verdict)

    clock.advance(10 * SECOND - MILLISECOND)
    await refused(gate, "circuit_open")
    clock.advance(MILLISECOND)
    await let_in(gate)


async def test_failures_from_before_do_not_open_a_breaker_that_has_just_closed(
    gate: Gate, clock: FakeClock
) -> None:
    early = [await let_in(gate) for _ in range(10)]
    await trip(gate, clock)
    await call(gate, "alive")

    for each in early:
        await gate.leave(each, RULES, verdict="failing")

    assert await gate.inspect(KEY) == Condition()


async def test_a_success_from_before_does_not_pardon_new_failures(
    gate: Gate, clock: FakeClock
) -> None:
    early = await let_in(gate)
    await trip(gate, clock)
    await call(gate, "alive")
    await call(gate, "failing", times=4)

    await gate.leave(early, RULES, verdict="alive")

    assert (await gate.inspect(KEY)).failures == 4


async def test_a_second_probe_does_not_undo_what_the_first_has_decided(
    gate: Gate, clock: FakeClock
) -> None:
    await trip(gate, clock)
    first, second, third = [await let_in(gate) for _ in range(3)]

    await gate.leave(first, RULES, verdict="alive")
    await gate.leave(second, RULES, verdict="failing")

    assert await gate.inspect(KEY) == Condition(slots_in_use=1)
    await gate.leave(third, RULES, verdict="unknown")


async def test_a_probe_has_no_say_in_the_next_half_open_state(gate: Gate, clock: FakeClock) -> None:
    """With a long slot_ttl a slow probe can outlive the state that let it in."""
    rules = Rules(slot_ttl=timedelta(minutes=5))
    await trip(gate, clock, rules)
    slow = [await let_in(gate, rules), await let_in(gate, rules)]
    await call(gate, "failing", rules)
    clock.advance(rules.open_for)

    await gate.leave(slow[0], rules, verdict="alive")
    await gate.leave(slow[1], rules, verdict="failing")

    assert (await gate.inspect(KEY)).breaker == "half_open"
    for _ in range(3):
        assert (await let_in(gate, rules)).is_probe


async def test_only_failing_calls_count_against_the_endpoint(gate: Gate) -> None:
    """A 4xx is an answer of a healthy endpoint, and a cancelled call is none."""
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


async def test_a_breaker_that_nobody_asks_for_an_hour_is_closed(
    gate: Gate, clock: FakeClock
) -> None:
    await call(gate, "failing", times=5)

    clock.advance(RULES.open_for + timedelta(hours=1))

    assert not (await let_in(gate)).is_probe
    assert await gate.inspect(KEY) == Condition(slots_in_use=1)


async def test_who_is_refused_by_an_open_breaker_comes_back_when_it_is_half_open(
    gate: Gate, clock: FakeClock
) -> None:
    """All at the same moment would be a stampede: a random part of a second and 10 % is added."""
    await call(gate, "failing", times=5)
    clock.advance(10 * SECOND)

    after = await refused(gate, "circuit_open")

    assert after == 20 * SECOND + HALF * (1 * SECOND + 2 * SECOND)


async def test_the_rules_of_the_moment_hold(gate: Gate, clock: FakeClock) -> None:
    """A changed rule needs no restart, and nobody waits for what an older one said."""
    patient = Rules(open_for=timedelta(hours=1))
    await call(gate, "failing", patient, times=5)
    clock.advance(SECOND)
    await refused(gate, "circuit_open", patient)

    assert (await let_in(gate, Rules(open_for=10 * SECOND))).is_probe


# The rate.


async def test_instants_are_exactly_one_interval_apart(gate: Gate) -> None:
    """Nothing is saved up, and what lies within a quarter of a second is given at once."""
    rules = Rules(rate=100)

    waits = [(await let_in(gate, rules)).wait for _ in range(26)]

    assert waits == [n / 100 for n in range(26)]
    await refused(gate, "rate_limited", rules)


async def test_a_quiet_time_is_not_saved_up(gate: Gate, clock: FakeClock) -> None:
    rules = Rules(rate=10)
    await let_in(gate, rules)

    clock.advance(timedelta(minutes=1))

    assert [(await let_in(gate, rules)).wait for _ in range(3)] == [0, 0.1, 0.2]


async def test_an_interval_that_is_no_whole_number_is_never_too_short(
    gate: Gate, clock: FakeClock
) -> None:
    """A third of a second is 333,333.3 microseconds."""
    rules = Rules(rate=3)
    starts: list[int] = []
    for _ in range(100):
        clock.advance(300 * MILLISECOND)
        answer = await gate.enter(KEY, rules)
        if isinstance(answer, Pass):
            starts.append(answer.entered_at + round(answer.wait * 1_000_000))

    assert min(later - earlier for earlier, later in pairwise(starts)) == 333_334
    assert len(starts) == pytest.approx(90, abs=1)


async def test_each_key_has_a_rate_of_its_own(gate: Gate) -> None:
    slow, fast = Rules(rate=1), Rules(rate=1000)

    await let_in(gate, slow, key="slow")
    waits = [(await let_in(gate, fast, key="fast")).wait for _ in range(10)]

    assert waits == [n / 1000 for n in range(10)]
    await refused(gate, "rate_limited", slow, key="slow")


async def test_who_is_refused_by_the_semaphore_uses_no_instant_up(
    gate: Gate, clock: FakeClock
) -> None:
    rules = Rules(rate=10, concurrency=1)
    holder = await let_in(gate, rules)
    for _ in range(5):
        await refused(gate, "crowded", rules)

    await gate.leave(holder, rules, verdict="alive")

    assert (await let_in(gate, rules)).wait == 0.1
    assert clock.now().hour == 12, "no time has passed"


async def test_a_new_rate_holds_at_once(gate: Gate) -> None:
    await let_in(gate, Rules(rate=0.1))
    await refused(gate, "rate_limited", Rules(rate=0.1))

    assert (await let_in(gate, Rules(rate=10))).wait == 0.1


async def test_a_clock_that_is_set_back_stops_nobody(gate: Gate, clock: FakeClock) -> None:
    """Else everything would wait until the clock is there again."""
    rules = Rules(rate=10)
    await let_in(gate, rules)
    await call(gate, "failing", RULES, key="other", times=5)

    clock.advance(timedelta(hours=-5))

    assert (await let_in(gate, rules)).wait == 0
    assert (await let_in(gate, rules)).wait == 0.1
    assert (await let_in(gate, RULES, key="other")).is_probe


async def test_who_is_refused_by_the_rate_is_lined_up(gate: Gate) -> None:
    """One interval behind the one before, and half the time ahead early, so as not to be late."""
    rules = Rules(rate=10)
    for _ in range(3):
        await let_in(gate, rules)

    waits = [await refused(gate, "rate_limited", rules) for _ in range(4)]

    early = 125 * MILLISECOND
    assert waits == [n * 100 * MILLISECOND - early for n in (3, 4, 5, 6)]


async def test_the_line_ends_after_ten_minutes(gate: Gate) -> None:
    """Who does not fit comes back some time in the second half of it."""
    rules = Rules(rate=0.1)
    await let_in(gate, rules)

    waits = [await refused(gate, "rate_limited", rules) for _ in range(100)]

    assert max(waits) < timedelta(minutes=10)
    assert waits[-1] == waits[-2] == timedelta(minutes=7.5) - 125 * MILLISECOND


async def test_a_line_whose_people_do_not_come_is_forgotten(gate: Gate, clock: FakeClock) -> None:
    """They were cancelled. Who comes later must not queue behind nobody."""
    rules = Rules(rate=10)
    for _ in range(3):
        await let_in(gate, rules)
    waits = [await refused(gate, "rate_limited", rules) for _ in range(1000)]
    assert waits[-1] > timedelta(seconds=90)

    clock.advance(2 * SECOND)
    for _ in range(3):
        await let_in(gate, rules)

    assert await refused(gate, "rate_limited", rules) < SECOND


async def test_a_thousand_callers_use_the_whole_rate_and_are_refused_about_once(
    gate: Gate, clock: FakeClock
) -> None:
    """Each refusal costs a trip through the database."""
    rules = Rules(rate=100, concurrency=10_000)

    starts, refusals = await work_off(gate, clock, rules, callers=1000, each=timedelta(0))

    assert most_in_a_second(starts) <= 100
    assert max(starts) - min(starts) < 10.2, "10 s at 100 a second"
    assert refusals < 1.1 * 1000


# The semaphore.


@pytest.mark.covers("B52")
async def test_a_hundred_calls_are_under_way_at_most(gate: Gate) -> None:
    held = [await let_in(gate) for _ in range(100)]
    await refused(gate, "crowded")

    await gate.leave(held[0], RULES, verdict="alive")

    assert (await gate.inspect(KEY)).slots_in_use == 99
    await let_in(gate)
    await refused(gate, "crowded")


@pytest.mark.covers("B53", "B70")
async def test_the_slots_of_a_killed_worker_free_themselves(gate: Gate, clock: FakeClock) -> None:
    """After 30 s, or whatever the rules say: it must be longer than the HTTP timeout."""
    for rules, key in ((Rules(), "usual"), (Rules(slot_ttl=timedelta(seconds=75)), "long")):
        for _ in range(100):
            await let_in(gate, rules, key=key)

        clock.advance(rules.slot_ttl - MILLISECOND)
        await refused(gate, "crowded", rules, key=key)
        clock.advance(MILLISECOND)

        await let_in(gate, rules, key=key)
        assert (await gate.inspect(key)).slots_in_use == 1


async def test_a_slot_is_held_from_the_instant_of_its_call(gate: Gate, clock: FakeClock) -> None:
    """Else a call that had to wait would lose its slot before its timeout."""
    rules = Rules(rate=5, slot_ttl=SECOND)
    await let_in(gate, rules)
    assert (await let_in(gate, rules)).wait == 0.2

    clock.advance(1.1 * SECOND)
    assert (await gate.inspect(KEY)).slots_in_use == 1
    clock.advance(0.1 * SECOND)

    assert (await gate.inspect(KEY)).slots_in_use == 0


async def test_who_returns_after_its_slot_expired_frees_nobody_elses(
    gate: Gate, clock: FakeClock
) -> None:
    rules = Rules(concurrency=1)
    stalled = await let_in(gate, rules)
    clock.advance(rules.slot_ttl)
    await let_in(gate, rules)

    await gate.leave(stalled, rules, verdict="alive")

    await refused(gate, "crowded", rules)


@pytest.mark.covers("B55")
@pytest.mark.parametrize("verdict", ["alive", "failing", "unknown"])
async def test_every_verdict_gives_the_slot_back(gate: Gate, verdict: Verdict) -> None:
    rules = Rules(concurrency=1)
    held = await let_in(gate, rules)

    await gate.leave(held, rules, verdict=verdict)

    assert (await gate.inspect(KEY)).slots_in_use == 0
    await let_in(gate, rules)


async def test_to_leave_twice_is_harmless(gate: Gate) -> None:
    rules = Rules(concurrency=2)
    first, _ = await let_in(gate, rules), await let_in(gate, rules)

    await gate.leave(first, rules, verdict="alive")
    await gate.leave(first, rules, verdict="unknown")

    await let_in(gate, rules)
    await refused(gate, "crowded", rules)


async def test_who_finds_no_slot_is_lined_up_by_how_long_calls_take(
    gate: Gate, clock: FakeClock
) -> None:
    """Ten calls of 2 s each, evenly begun: one ends every 200 ms."""
    rules = Rules(concurrency=10)
    for _ in range(10):
        await let_in(gate, rules)
        clock.advance(200 * MILLISECOND)

    waits = [await refused(gate, "crowded", rules) for _ in range(3)]

    assert waits == [200 * MILLISECOND, 400 * MILLISECOND, 600 * MILLISECOND]


async def test_nobody_is_sent_away_for_less_than_a_timer_can_tell(gate: Gate) -> None:
    rules = Rules(concurrency=1)
    await let_in(gate, rules)

    assert await refused(gate, "crowded", rules) == 2 * MILLISECOND


async def test_five_hundred_callers_use_all_slots_and_are_seldom_refused(
    gate: Gate, clock: FakeClock
) -> None:
    rules = Rules(concurrency=10)

    starts, refusals = await work_off(
        gate, clock, rules, callers=500, each=timedelta(milliseconds=200)
    )

    assert max(starts) - min(starts) < 15, "10 s if no slot was ever empty"
    assert refusals < 3 * 500


# Rests.


async def test_a_rest_closes_the_whole_endpoint(gate: Gate, clock: FakeClock) -> None:
    passed = await let_in(gate)
    await gate.leave(passed, RULES, verdict="alive", rest=timedelta(minutes=1))

    after = await refused(gate, "resting")
    assert after == 60 * SECOND + HALF * (1 * SECOND + 6 * SECOND)
    assert (await gate.inspect(KEY)).resting_until == clock.now() + timedelta(minutes=1)
    await let_in(gate, key="another")
    clock.advance(timedelta(minutes=1) - MILLISECOND)
    await refused(gate, "resting")
    clock.advance(MILLISECOND)

    await let_in(gate)
    assert (await gate.inspect(KEY)).resting_until is None


async def test_a_rest_never_shortens_another(gate: Gate, clock: FakeClock) -> None:
    """Two answers say different things: the endpoint has at least the time it asked for."""
    first, second = await let_in(gate), await let_in(gate)
    await gate.leave(first, RULES, verdict="alive", rest=60 * SECOND)

    await gate.leave(second, RULES, verdict="alive", rest=5 * SECOND)

    clock.advance(59 * SECOND)
    await refused(gate, "resting")


async def test_a_rest_lasts_a_day_at_most(gate: Gate, clock: FakeClock) -> None:
    """Retry-After is a stranger's number."""
    passed = await let_in(gate)
    await gate.leave(passed, RULES, verdict="alive", rest=timedelta(days=3650))

    clock.advance(timedelta(days=1))

    await let_in(gate)


async def test_who_would_come_back_into_a_rest_comes_back_after_it(
    gate: Gate, clock: FakeClock
) -> None:
    """A 503 with Retry-After does both: it fails, and it asks for a rest."""
    passed = await let_in(gate)
    await call(gate, "failing", times=4)
    await gate.leave(passed, RULES, verdict="failing", rest=timedelta(minutes=10))

    assert await refused(gate, "circuit_open") > timedelta(minutes=10)

    clock.advance(RULES.open_for)
    await refused(gate, "resting")
    assert (await gate.inspect(KEY)).breaker == "half_open", "no probe was used up"


async def test_a_key_that_nobody_used_is_in_good_order(gate: Gate) -> None:
    assert await gate.inspect("nobody") == Condition()


async def trip(gate: Gate, clock: FakeClock, rules: Rules = RULES) -> None:
    """Bring the breaker into its half-open state, without any probe."""
    await call(gate, "failing", rules, times=rules.failures_max)
    clock.advance(rules.open_for)


async def work_off(
    gate: Gate, clock: FakeClock, rules: Rules, *, callers: int, each: timedelta
) -> tuple[list[float], int]:
    """Let callers come all at once, and again whenever they are told to, a little late.

    Returns the seconds at which their calls began, and how often one was refused.
    """
    began_at = clock.now()
    numbers = count()
    events: list[tuple[timedelta, int, Pass | None]] = []
    for _ in range(callers):
        heappush(events, (timedelta(0), next(numbers), None))
    starts: list[float] = []
    refusals = 0
    while events:
        at, n, passed = heappop(events)
        clock.advance(began_at + at - clock.now())
        if passed is not None:
            await gate.leave(passed, rules, verdict="alive")
            continue
        answer = await gate.enter(KEY, rules)
        if isinstance(answer, Pass):
            starts.append(at.total_seconds() + answer.wait)
            ends = at + timedelta(seconds=answer.wait) + each
            heappush(events, (ends, next(numbers), answer))
        else:
            refusals += 1
            late = n * 7 % 60 * MILLISECOND
            heappush(events, (at + answer.after + late, next(numbers), None))
    return starts, refusals


def most_in_a_second(starts: list[float]) -> int:
    """Return how many starts the fullest second has, wherever it begins."""
    ordered = sorted(starts)
    most = first = 0
    for last, start in enumerate(ordered):
        while start - ordered[first] >= 1 - 1e-9:
            first += 1
        most = max(most, last - first + 1)
    return most
