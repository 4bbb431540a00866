"""The rules of slots, shown on the oracle; test_differential compares it with the database."""

import re
from bisect import bisect_left
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.base.errors import InvalidInput
from penstock.calendar.calendar import WEEKDAYS, Blackout, Calendar, CutOffPolicy, Hours
from penstock.calendar.instant import END_AT
from tests.domains.slots.oracle import Assignment, Ledger, Pool, Rule
from tests.domains.slots.oracle.cells import Grid, taken, to_instant, to_micros

MICROSECOND = timedelta(microseconds=1)
MILLISECOND = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)  # A Tuesday; windows of 4 s start there.
RULE = Rule(window_size=4 * SECOND, max_per_window=100)
FOUR = Rule(window_size=4 * SECOND, max_per_window=4)  # A cell each second.


def pool_of(rule: Rule = FOUR) -> Pool:
    return Pool(rule, now=NOON)


def fill(pool: Pool, count: int, *, at: datetime = NOON, name: str = "event") -> list[Assignment]:
    return [pool.assign(f"{name}-{number}", at, now=NOON) for number in range(count)]


def seconds(at: datetime | None) -> float:
    """Return how long after noon."""
    assert at is not None
    return (at - NOON).total_seconds()


def booked(pool: Pool) -> list[float]:
    return [seconds(to_instant(slot.place.at)) for slot in pool.slots]


# ------------------------------------------------------------------------------------- cells

grids = st.integers(1_000, 10_000_000).flatmap(
    lambda size: st.builds(Grid, size=st.just(size), capacity=st.integers(1, min(size, 1_000_000)))
)
cells = st.integers(-(10**6), 10**9)


@given(grid=grids, cell=cells)
def test_a_cell_begins_at_one_instant_of_its_own_window(grid: Grid, cell: int) -> None:
    at = grid.instant_of(cell)

    assert grid.cell_of(at) == cell
    assert grid.before(at) == cell
    assert grid.before(at + 1) == cell + 1
    assert grid.window_of(at) == cell // grid.capacity * grid.size
    assert grid.instant_of(cell + grid.capacity) == at + grid.size


available = st.integers(1, 12).map(lambda count: range(100, 100 + count))
wanted = st.lists(st.integers(97, 111), max_size=15)


@given(wanted=wanted, available=available, data=st.data())
def test_slots_take_cells_as_if_each_took_the_next_free_one(
    wanted: list[int], available: range, data: st.DataObject
) -> None:
    """In any order of arrival: two nodes must agree without knowing the history."""
    slots = [min(cell, available[-1]) for cell in wanted]
    arrived = data.draw(st.permutations(slots))

    found = taken(slots, available)

    free = set(available)
    for slot in arrived:
        later = [cell for cell in free if cell >= slot]
        if later:
            free.remove(min(later))
    overflow = min(len(arrived) - (len(available) - len(free)), len(free))
    assert found == set(available) - set(sorted(free)[: len(free) - overflow])


@given(wanted=wanted, available=available)
def test_a_slot_in_a_free_cell_displaces_no_other(wanted: list[int], available: range) -> None:
    slots = [min(cell, available[-1]) for cell in wanted]
    before = taken(slots, available)

    for cell in set(available) - before:
        assert taken([*slots, cell], available) == before | {cell}


# ------------------------------------------------------------------------------------ assign


def test_events_for_one_instant_are_spaced_evenly_from_that_instant() -> None:
    answers = fill(pool_of(), 6)

    assert [seconds(answer.scheduled_at) for answer in answers] == [0, 1, 2, 3, 4, 5]
    assert [seconds(answer.window_at) for answer in answers] == [0, 0, 0, 0, 4, 4]
    assert [answer.position for answer in answers[:5]] == [0, 10**6, 2 * 10**6, 3 * 10**6, 0]


def test_the_rest_of_a_window_has_a_proportional_number_of_cells() -> None:
    answers = fill(pool_of(RULE), 3, at=NOON + 3900 * MILLISECOND)

    assert [seconds(answer.scheduled_at) for answer in answers] == [3.92, 3.96, 4.0]


def test_a_window_without_a_cell_after_the_request_is_skipped() -> None:
    """With a capacity of one, that is every instant but the window's first."""
    alone = Rule(window_size=4 * SECOND, max_per_window=1)

    first = pool_of(alone).assign("event", NOON, now=NOON)
    later = pool_of(alone).assign("event", NOON + MICROSECOND, now=NOON)

    assert seconds(first.scheduled_at) == 0
    assert seconds(later.scheduled_at) == 4


def test_windows_may_be_shorter_than_a_second_and_need_not_divide_a_day() -> None:
    half = fill(pool_of(Rule(window_size=500 * MILLISECOND, max_per_window=2)), 4)
    seven = pool_of(Rule(window_size=7 * SECOND, max_per_window=1)).assign("e", NOON, now=NOON)

    assert [seconds(answer.scheduled_at) for answer in half] == [0, 0.25, 0.5, 0.75]
    assert seven.window_at is not None
    assert to_micros(seven.window_at) % (7 * 10**6) == 0


def test_a_requested_time_in_the_past_means_now() -> None:
    answer = pool_of().assign("event", NOON - HOUR, now=NOON + 1500 * MILLISECOND)

    assert seconds(answer.scheduled_at) == 2


def test_a_time_beyond_the_horizon_books_nothing() -> None:
    pool = pool_of()

    within = pool.assign("within", NOON + FOUR.horizon, now=NOON)
    beyond = pool.assign("beyond", NOON + FOUR.horizon + MICROSECOND, now=NOON)

    assert within.outcome == "assigned"
    assert beyond == Assignment(outcome="beyond_horizon")
    assert len(pool.slots) == 1


def test_a_repeated_request_gets_the_same_slot_for_any_time_and_pool() -> None:
    ledger = Ledger()
    pool = Pool(FOUR, now=NOON, ledger=ledger)
    other = Pool(FOUR, now=NOON, name="other", ledger=ledger)
    first = pool.assign("event", NOON, now=NOON)

    again = pool.assign("event", NOON, now=NOON + HOUR)
    later = pool.assign("event", NOON + SECOND, now=NOON)
    elsewhere = other.assign("event", NOON, now=NOON)

    assert again == later == elsewhere == replace(first, outcome="existing")
    assert len(ledger.slots) == 1


def test_in_a_strict_pool_another_time_or_pool_is_a_conflict() -> None:
    ledger = Ledger()
    strict = replace(FOUR, is_strict=True)
    pool = Pool(strict, now=NOON, ledger=ledger)
    other = Pool(strict, now=NOON, name="other", ledger=ledger)
    first = pool.assign("event", NOON, now=NOON)

    again = pool.assign("event", NOON, now=NOON + HOUR)
    later = pool.assign("event", NOON + SECOND, now=NOON)
    elsewhere = other.assign("event", NOON, now=NOON)

    assert again == replace(first, outcome="existing")
    assert later == elsewhere == replace(first, outcome="conflict")
    assert len(ledger.slots) == 1


def test_pools_do_not_share_capacity() -> None:
    ledger = Ledger()
    pools = [Pool(FOUR, now=NOON, name=name, ledger=ledger) for name in ("one", "two")]

    answers = [pool.assign(f"event of {pool.name}", NOON, now=NOON) for pool in pools]

    assert [seconds(answer.scheduled_at) for answer in answers] == [0, 0]


def test_a_random_instant_is_in_the_window_of_its_cell_and_not_before_the_request() -> None:
    pool = pool_of(replace(FOUR, spacing="random"))

    answers = fill(pool, 3, at=NOON + 2500 * MILLISECOND)

    bounds = [tuple(map(seconds, answer.bounds or ())) for answer in answers]
    assert bounds == [(2.5, 4), (4, 8), (4, 8)]
    assert {answer.scheduled_at for answer in answers} == {None}
    assert booked(pool) == [3, 4, 5]


def test_a_batch_is_served_by_requested_time_then_by_position() -> None:
    pool = pool_of()
    pool.assign("known", NOON, now=NOON)

    answers = pool.assign_batch(
        [
            ("late", NOON + 2 * SECOND),
            ("known", NOON),
            ("early", NOON - SECOND),
            ("past", NOON - HOUR),
            ("far", NOON + 400 * DAY),
            ("early", NOON - SECOND),
            ("early", NOON),
            ("far", NOON),
            ("farther", NOON + 400 * DAY),
        ],
        now=NOON,
    )

    outcomes = [answer.outcome for answer in answers]
    assert outcomes[:4] == ["assigned", "existing", "assigned", "assigned"]
    assert outcomes[4:] == ["existing", "existing", "existing", "assigned", "beyond_horizon"]
    # Past, early and the second far all mean now, so their order decides; late comes after them.
    assert [seconds(answer.scheduled_at) for answer in answers[:4]] == [4, 0, 1, 2]
    assert [seconds(answers[place].scheduled_at) for place in (4, 7)] == [3, 3]


# ------------------------------------------------------------------------- cancel and change


def test_a_cancelled_slot_goes_to_the_next_caller_and_its_event_may_request_again() -> None:
    pool = pool_of()
    fill(pool, 3)

    outcomes = [pool.cancel("event-1"), pool.cancel("event-1"), pool.cancel("nobody")]
    successor = pool.assign("successor", NOON, now=NOON)
    again = pool.assign("event-1", NOON, now=NOON)

    assert outcomes == ["cancelled", "already_cancelled", "unknown"]
    assert seconds(successor.scheduled_at) == 1
    assert seconds(again.scheduled_at) == 3


def test_cancelling_frees_the_cell_of_the_pool_that_has_the_slot() -> None:
    ledger = Ledger()
    pool = Pool(FOUR, now=NOON, ledger=ledger)
    other = Pool(FOUR, now=NOON, name="other", ledger=ledger)
    pool.assign("event", NOON, now=NOON)

    other.cancel("event")
    successor = pool.assign("successor", NOON, now=NOON)

    assert seconds(successor.scheduled_at) == 0


def test_raised_capacity_is_available_at_once() -> None:
    """With 80 of 100 taken, a capacity of 200 leaves 120 in the same window."""
    pool = pool_of(RULE)
    fill(pool, 80)

    effective_at = pool.change(replace(RULE, max_per_window=200), now=NOON + SECOND)
    answers = fill(pool, 121, name="later")

    assert effective_at == NOON
    windows = [seconds(answer.window_at) for answer in answers]
    assert windows == [0] * 120 + [4]
    assert len(set(booked(pool))) == 201


def test_lowered_capacity_keeps_all_slots_and_fills_the_window() -> None:
    pool = pool_of(RULE)
    fill(pool, 80)
    before = booked(pool)

    pool.change(replace(RULE, max_per_window=50), now=NOON + SECOND)
    answer = pool.assign("later", NOON, now=NOON)

    assert booked(pool)[:80] == before
    assert seconds(answer.scheduled_at) == 4


def test_a_new_window_size_takes_effect_at_its_next_window() -> None:
    """Until then the old windows are in force; the last of them ends at that instant."""
    pool = pool_of()

    effective_at = pool.change(
        Rule(window_size=3 * SECOND, max_per_window=1), now=NOON + 1500 * MILLISECOND
    )
    answers = fill(pool, 5)

    assert seconds(effective_at) == 3
    assert [seconds(answer.scheduled_at) for answer in answers] == [0, 1, 2, 3, 6]


def test_a_new_window_size_at_a_window_boundary_waits_for_the_next_one() -> None:
    effective_at = pool_of().change(Rule(window_size=2 * SECOND, max_per_window=1), now=NOON)

    assert seconds(effective_at) == 2


def test_a_pending_window_size_can_be_replaced_before_it_takes_effect() -> None:
    """The size in force counts; otherwise the second change would apply to the past."""
    pool = pool_of()
    now = NOON + 5 * SECOND
    minutes = Rule(window_size=timedelta(minutes=1), max_per_window=1)

    effective = [pool.change(rule, now=now) for rule in (minutes, minutes, FOUR)]

    assert [seconds(effective_at) for effective_at in effective] == [60, 60, 4]


def test_slots_in_time_that_is_now_closed_stay_and_take_no_cell() -> None:
    pool = pool_of()
    fill(pool, 8)
    closed = Blackout(from_at=NOON, until_at=NOON + 6 * SECOND)

    pool.change(replace(FOUR, calendar=Calendar(time_zone="UTC", blackouts=(closed,))), now=NOON)
    answers = fill(pool, 3, name="later")

    assert booked(pool)[:8] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert [seconds(answer.scheduled_at) for answer in answers] == [8, 9, 10]


# ----------------------------------------------------------------------------------- calendar


MINUTE = timedelta(minutes=1)
HALF_MINUTES = Rule(window_size=MINUTE, max_per_window=2)


def weekday_pool(policy: CutOffPolicy = "next_open_window", *, rule: Rule = HALF_MINUTES) -> Pool:
    """Open daily for two minutes from noon, with a cell each half minute; the cut-off is
    after one.
    """
    hours = Hours(days=WEEKDAYS, opens="12:00", closes="12:02")
    calendar = Calendar(time_zone="UTC", hours=(hours,), cut_off="12:01", cut_off_policy=policy)
    return pool_of(replace(rule, calendar=calendar))


TOMORROW = DAY.total_seconds()


def test_closed_time_has_no_cells() -> None:
    pool = weekday_pool()

    answers = fill(pool, 6)
    overnight = pool.assign("overnight", NOON + HOUR, now=NOON)

    assert [seconds(answer.scheduled_at) for answer in answers[:4]] == [0, 30, 60, 90]
    assert [seconds(answer.scheduled_at) - TOMORROW for answer in answers[4:]] == [0, 30]
    assert seconds(overnight.scheduled_at) - TOMORROW == 60


def test_a_request_after_the_cut_off_gets_the_next_day() -> None:
    pool = weekday_pool()

    in_time = pool.assign("in time", NOON + MINUTE - MICROSECOND, now=NOON)
    late = pool.assign("late", NOON + MINUTE, now=NOON)
    after = pool.assign("after closing", NOON + 2 * MINUTE, now=NOON)

    assert seconds(in_time.scheduled_at) == 60
    assert [seconds(each.scheduled_at) - TOMORROW for each in (late, after)] == [0, 30]


def test_the_policy_reject_returns_a_reason_and_books_nothing() -> None:
    pool = weekday_pool("reject")
    late = pool.assign("late", NOON + MINUTE, now=NOON)

    answers = fill(pool, 5)

    assert late == Assignment(outcome="after_cut_off")
    assert [answer.outcome for answer in answers] == [*["assigned"] * 4, "day_full"]
    assert booked(pool) == [0, 30, 60, 90]


def test_the_policy_overbook_stays_within_the_day() -> None:
    """Each event over capacity is a microsecond after a cell chosen by its id, alone there."""
    pool = weekday_pool("overbook")

    answers = fill(pool, 20, at=NOON + MINUTE)

    regular, over = answers[:2], answers[2:]
    assert [seconds(answer.scheduled_at) for answer in regular] == [60, 90]
    assert all(answer.is_overbooked for answer in over)
    assert len(set(booked(pool))) == 20
    behind = {int(at) for at in booked(pool)}
    assert behind == {60, 90}
    assert max(at - int(at) for at in booked(pool)) < 20e-6


def test_an_overbooked_event_chooses_its_cell_by_the_hash_of_its_id() -> None:
    """The database must choose the same cell."""
    pool = weekday_pool("overbook")
    fill(pool, 4)

    answers = [pool.assign(name, NOON, now=NOON) for name in ("a", "b", "c")]

    # md5("a") begins with 0cc175b9, md5("b") with 92eb5ffe, md5("c") with 4a8a08f0; modulo 4.
    assert [seconds(answer.scheduled_at) for answer in answers] == [30.000001, 60.000001, 0.000001]


def test_after_the_last_cell_of_the_day_overbooking_starts_at_the_request() -> None:
    pool = weekday_pool("overbook")

    answers = fill(pool, 2, at=NOON + 100 * SECOND)

    assert [seconds(answer.scheduled_at) for answer in answers] == [100, 100.000001]
    assert [seconds(answer.window_at) for answer in answers] == [60, 60]


def test_random_instants_stay_within_opening_hours() -> None:
    """The window begins before the hours and ends after them."""
    wide = Rule(window_size=HOUR * 24, max_per_window=86_400, spacing="random")
    pool = weekday_pool(rule=wide)

    answer = pool.assign("event", NOON - HOUR, now=NOON - HOUR)

    assert answer.bounds == (NOON, NOON + 2 * MINUTE)
    assert answer.window_at == NOON - 12 * HOUR


def test_hours_that_have_no_cell_are_refused() -> None:
    """One cell a day, at midnight, and closed at midnight: no request would get a slot."""
    with pytest.raises(InvalidInput, match="no place"):
        weekday_pool(rule=Rule(window_size=DAY, max_per_window=1))


def test_open_time_without_a_cell_is_not_a_day() -> None:
    """It has no slots: a request in it is a request for the next day, which is not full."""
    hours = Hours(days=WEEKDAYS, opens="12:00", closes="12:02")
    holes = (
        Blackout(from_at=NOON, until_at=NOON + 100 * MILLISECOND),
        Blackout(from_at=NOON + 900 * MILLISECOND, until_at=NOON + HOUR),
    )
    calendar = Calendar(time_zone="UTC", hours=(hours,), blackouts=holes, cut_off_policy="reject")
    pool = pool_of(replace(FOUR, calendar=calendar))

    answer = pool.assign("event", NOON + 500 * MILLISECOND, now=NOON)

    assert seconds(answer.scheduled_at) == TOMORROW


def test_a_pool_without_a_cell_before_2200_is_exhausted() -> None:
    pool = pool_of(replace(FOUR, horizon=366 * 200 * DAY))

    answer = pool.assign("event", END_AT, now=NOON)

    assert answer == Assignment(outcome="exhausted")


# ---------------------------------------------------------------------------------- forecast


def test_the_last_of_a_million_for_noon_is_at_23_06_39_96() -> None:
    forecast = pool_of(RULE).forecast(1_000_000, NOON, now=NOON)

    assert forecast.first_at == NOON
    assert forecast.last_at == datetime(2030, 1, 1, 23, 6, 39, 960_000, tzinfo=UTC)
    assert forecast.windows == 10_000


def test_a_forecast_skips_booked_and_closed_time_and_books_nothing() -> None:
    pool = weekday_pool()
    fill(pool, 2)

    forecasts = [pool.forecast(3, NOON, now=NOON) for _ in range(2)]

    assert forecasts[0] == forecasts[1]
    assert seconds(forecasts[0].first_at) == 60
    assert seconds(forecasts[0].last_at) == TOMORROW
    assert forecasts[0].windows == 2
    assert len(pool.slots) == 2


# ------------------------------------------------------------------------------------- reflow


def test_after_a_capacity_cut_a_reflow_spreads_the_slots_in_their_order() -> None:
    pool = pool_of()
    fill(pool, 8)
    pool.change(replace(FOUR, max_per_window=2), now=NOON)

    planned = pool.reflow(NOON + SECOND, now=NOON, is_dry_run=True)
    before = booked(pool)
    done = pool.reflow(NOON + SECOND, now=NOON)

    assert before == [0, 1, 2, 3, 4, 5, 6, 7]
    assert planned == done
    assert (done.frozen_until, done.considered) == (NOON + 4 * SECOND, 4)
    assert [move.event_id for move in done.moves] == ["event-5", "event-6", "event-7"]
    assert booked(pool) == [0, 1, 2, 3, 4, 6, 8, 10]


def test_a_reflow_closes_gaps_but_moves_no_slot_before_its_requested_time() -> None:
    pool = pool_of()
    fill(pool, 8)
    pool.assign("bound", NOON + 10 * SECOND, now=NOON)
    for number in (4, 5, 6):
        pool.cancel(f"event-{number}")

    done = pool.reflow(NOON + 4 * SECOND, now=NOON)

    assert [move.event_id for move in done.moves] == ["event-7"]
    assert booked(pool) == [0, 1, 2, 3, 4, 10]


def test_a_reflow_gives_overbooked_slots_a_cell_of_their_own() -> None:
    pool = weekday_pool("overbook")
    fill(pool, 6)

    pool.reflow(NOON, now=NOON)

    assert booked(pool) == [0, 30, 60, 90, TOMORROW, TOMORROW + 30]


def test_a_slot_that_missed_the_cut_off_stays_after_that_day() -> None:
    pool = weekday_pool()
    pool.assign("late", NOON + MINUTE, now=NOON)
    pool.assign("in time", NOON, now=NOON)

    pool.reflow(NOON, now=NOON)

    assert booked(pool) == [0, TOMORROW]


def test_a_reflow_starts_at_the_next_boundary_and_never_in_the_past() -> None:
    """In closed time that is the next opening, in open time the next window or the closing."""
    pool = weekday_pool()

    edges = [
        pool.reflow(freeze_until, now=now).frozen_until
        for freeze_until, now in (
            (NOON - HOUR, NOON - HOUR),
            (NOON - HOUR, NOON + SECOND),
            (NOON + SECOND, NOON),
            (NOON + 61 * SECOND, NOON),
            (NOON + HOUR, NOON),
        )
    ]

    assert [seconds(edge) for edge in edges] == [0, 60, 60, 120, TOMORROW]


# ------------------------------------------------------------------------- on all histories

rules = st.integers(1, 8_000).flatmap(
    lambda size: st.builds(
        Rule,
        window_size=st.just(size * MILLISECOND),
        max_per_window=st.integers(1, 7),
    )
)
offsets = st.timedeltas(-SECOND, 20 * SECOND)
request_lists = st.lists(offsets, min_size=1, max_size=40)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("assign"), offsets),
        st.tuples(st.just("cancel"), st.integers(0, 20)),
        st.tuples(st.just("change"), rules),
        st.tuples(st.just("reflow"), st.timedeltas(timedelta(0), 10 * SECOND)),
    ),
    max_size=40,
)
examples = settings(deadline=None)  # Durations vary with the load of the machine.


def serve(pool: Pool, requests: list[timedelta], *, name: str = "event") -> list[Assignment]:
    return [
        pool.assign(f"{name}-{number}", NOON + offset, now=NOON)
        for number, offset in enumerate(requests)
    ]


@examples
@given(rule=rules, requests=request_lists)
def test_a_slot_is_never_early_and_takes_the_first_free_cell(
    rule: Rule, requests: list[timedelta]
) -> None:
    answers = serve(pool_of(rule), requests)

    used: set[int] = set()
    for offset, answer in zip(requests, answers, strict=True):
        earliest_at = max(NOON + offset, NOON)
        cell = rule.grid.before(to_micros(earliest_at))
        while cell in used:
            cell += 1
        used.add(cell)
        assert answer.scheduled_at == to_instant(rule.grid.instant_of(cell))
        assert answer.scheduled_at is not None
        assert answer.scheduled_at >= earliest_at


@examples
@given(rule=rules, requests=request_lists)
def test_no_interval_as_long_as_a_window_holds_more_than_its_capacity(
    rule: Rule, requests: list[timedelta]
) -> None:
    """One more only if both ends are included."""
    pool = pool_of(rule)
    serve(pool, requests)

    times = [slot.place.at for slot in pool.slots]
    assert len(set(times)) == len(requests)
    for index, start in enumerate(times):
        before_end = bisect_left(times, start + rule.grid.size)
        up_to_end = bisect_left(times, start + rule.grid.size + 1)
        assert before_end - index <= rule.max_per_window
        assert up_to_end - index <= rule.max_per_window + 1


@examples
@given(rule=rules, requests=request_lists, data=st.data())
def test_the_booked_instants_do_not_depend_on_the_order_of_requests(
    rule: Rule, requests: list[timedelta], data: st.DataObject
) -> None:
    """So the sum of all delays is fixed."""
    first, second = pool_of(rule), pool_of(rule)

    serve(first, requests)
    serve(second, data.draw(st.permutations(requests)))

    assert booked(first) == booked(second)


@examples
@given(rule=rules, requests=request_lists, data=st.data())
def test_a_batch_books_the_same_as_single_requests_in_time_order(
    rule: Rule, requests: list[timedelta], data: st.DataObject
) -> None:
    alone, together = pool_of(rule), pool_of(rule)
    named = [(f"event-{number}", NOON + offset) for number, offset in enumerate(requests)]

    answers = together.assign_batch(data.draw(st.permutations(named)), now=NOON)
    serve(alone, requests)

    assert {answer.outcome for answer in answers} == {"assigned"}
    assert booked(alone) == booked(together)
    by_time = sorted(together.slots, key=lambda slot: max(slot.requested_at, NOON))
    times = [slot.place.at for slot in by_time]
    for (earlier, at), (later, next_at) in pairwise(zip(by_time, times, strict=True)):
        if max(earlier.requested_at, NOON) < max(later.requested_at, NOON):
            assert at < next_at


@examples
@given(rule=rules, requests=request_lists, data=st.data())
def test_the_next_request_for_that_time_gets_the_cancelled_slot(
    rule: Rule, requests: list[timedelta], data: st.DataObject
) -> None:
    pool = pool_of(rule)
    answers = serve(pool, requests)
    before = booked(pool)
    number = data.draw(st.integers(0, len(requests) - 1))

    pool.cancel(f"event-{number}")
    successor = pool.assign("successor", NOON + requests[number], now=NOON)

    assert successor == answers[number]
    assert booked(pool) == before


@examples
@given(rule=rules, requests=request_lists, count=st.integers(1, 30), offset=offsets)
def test_a_forecast_comes_true(
    rule: Rule, requests: list[timedelta], *, count: int, offset: timedelta
) -> None:
    pool = pool_of(rule)
    serve(pool, requests)

    forecast = pool.forecast(count, NOON + offset, now=NOON)
    answers = fill(pool, count, at=NOON + offset, name="later")

    assert forecast.first_at == answers[0].scheduled_at
    assert forecast.last_at == answers[-1].scheduled_at
    assert forecast.windows == len({answer.window_at for answer in answers})


Step = tuple[str, timedelta | int | Rule]


def live(pool: Pool, history: list[Step]) -> None:
    """Apply a history to a pool; its events are named after their step."""
    for number, step in enumerate(history):
        match step:
            case "assign", timedelta() as offset:
                pool.assign(f"event-{number}", NOON + offset, now=NOON)
            case "cancel", int(other):
                pool.cancel(f"event-{other}")
            case "change", Rule() as rule:
                pool.change(rule, now=NOON)
            case _, freeze:
                assert isinstance(freeze, timedelta)
                pool.reflow(NOON + freeze, now=NOON)


@examples
@given(history=steps)
def test_in_any_history_no_instant_is_booked_twice_or_early(history: list[Step]) -> None:
    pool = pool_of()

    live(pool, history)

    assert len(set(booked(pool))) == len(pool.slots)
    for slot in pool.slots:
        assert to_instant(slot.place.at) >= max(slot.requested_at, NOON)


@examples
@given(history=steps)
def test_in_any_history_no_window_is_booked_beyond_its_capacity(
    history: list[Step],
) -> None:
    """Only a change may leave a window above its capacity; then no slot is added to it."""
    pool = pool_of()
    live(pool, history)
    grid = pool.rule.grid
    starts_at = to_instant((to_micros(NOON) // grid.size + 1) * grid.size)
    full_before = _full_windows(pool)

    answers = fill(pool, 30, at=starts_at, name="later")

    windows = [answer.window_at for answer in answers]
    assert not full_before & set(windows)
    for window_at in set(windows):
        assert window_at is not None
        assert _count(pool, window_at) <= pool.rule.max_per_window


def _full_windows(pool: Pool) -> set[datetime]:
    windows = {to_instant(pool.rule.grid.window_of(slot.place.at)) for slot in pool.slots}
    return {at for at in windows if _count(pool, at) >= pool.rule.max_per_window}


def _count(pool: Pool, window_at: datetime) -> int:
    starts = to_micros(window_at)
    return sum(starts <= slot.place.at < starts + pool.rule.grid.size for slot in pool.slots)


@examples
@given(history=steps)
def test_the_caches_of_the_oracle_always_equal_a_recount(history: list[Step]) -> None:
    """A stale cache would make the oracle wrong."""
    pool = pool_of()
    live(pool, history)

    remembered = [pool.forecast(count, NOON, now=NOON) for count in (1, 7, 40)]
    pool.occupancy.recount()
    counted = [pool.forecast(count, NOON, now=NOON) for count in (1, 7, 40)]

    assert remembered == counted


@examples
@given(history=steps, freeze=st.timedeltas(timedelta(0), 10 * SECOND))
def test_a_reflow_respects_its_bounds_and_a_second_one_moves_nothing(
    history: list[Step], freeze: timedelta
) -> None:
    pool = pool_of()
    live(pool, history)
    frozen = [slot for slot in pool.slots if slot.place.at < to_micros(NOON + freeze)]
    order = [slot.event_id for slot in pool.slots]

    pool.reflow(NOON + freeze, now=NOON)
    again = pool.reflow(NOON + freeze, now=NOON)

    assert pool.slots[: len(frozen)] == frozen
    assert [slot.event_id for slot in pool.slots] == order
    assert again.moves == []


@examples
@given(
    policy=st.sampled_from(["next_open_window", "reject", "overbook"]),
    requests=st.lists(st.timedeltas(-MINUTE, 3 * MINUTE), max_size=12),
)
def test_under_every_policy_slots_are_in_open_time(
    policy: CutOffPolicy, requests: list[timedelta]
) -> None:
    pool = weekday_pool(policy)

    answers = serve(pool, requests)

    for offset, answer in zip(requests, answers, strict=True):
        if answer.scheduled_at is not None:
            assert (
                timedelta(0)
                <= answer.scheduled_at - NOON.replace(day=answer.scheduled_at.day)
                < 2 * MINUTE
            )
        if policy != "next_open_window" and offset < 2 * MINUTE:
            assert answer.scheduled_at is None or answer.scheduled_at.date() == date(2030, 1, 1)
        if policy == "next_open_window":
            assert answer.outcome == "assigned"
            assert not answer.is_overbooked


# --------------------------------------------------------------------------- tests and package


def test_the_package_does_not_import_from_tests() -> None:
    """Oracles prove something only while production code does not use them."""
    package = Path(penstock.__file__).parent
    imports = re.compile(r"^\s*(from|import) tests\b", re.MULTILINE)

    users = [path for path in package.rglob("*.py") if imports.search(path.read_text())]

    assert users == []
