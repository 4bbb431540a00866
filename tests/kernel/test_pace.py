"""When an item may start: never more starts in a second than rate and burst, whatever stalls."""

from bisect import bisect_left
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.pace import DELAY_MAX, LATE_MIN, MARGIN, STALL_MAX, Pace, tolerance

RATE = 100.0
BURST = 10
LATE_MAX = tolerance(RATE, BURST)
STALL = STALL_MAX.total_seconds()


def test_an_item_may_start_until_a_burst_of_slots_after_its_own() -> None:
    pace = Pace()

    assert pytest.approx(BURST / RATE - MARGIN.total_seconds()) == LATE_MAX
    assert not pace.has_missed(5.0, 5.0, late_max=LATE_MAX)
    assert not pace.has_missed(5.0, 5.0 + LATE_MAX - 0.001, late_max=LATE_MAX)
    assert pace.has_missed(5.0, 5.0 + LATE_MAX + 0.001, late_max=LATE_MAX)


def test_what_is_unknown_of_the_clock_is_taken_off() -> None:
    """A slot may be earlier by the error than it seems, and the start of another one later."""
    assert tolerance(RATE, BURST, error=0.002) == pytest.approx(LATE_MAX - 0.004)


def test_a_small_burst_allows_for_a_busy_process() -> None:
    """Otherwise a lane of 1,000 per second without a burst would have to start within 1 ms."""
    assert tolerance(1_000, 1) == LATE_MIN.total_seconds()


@given(
    stalls=st.lists(
        st.lists(st.tuples(st.floats(0.2, 1), st.floats(0, 0.9)), max_size=6),
        min_size=1,
        max_size=4,
    )
)
def test_no_second_has_more_starts_than_rate_and_burst(
    stalls: list[list[tuple[float, float]]],
) -> None:
    """Several processes share the slots of three seconds, and each stalls as it likes."""
    starts = sorted(
        start
        for number, each in enumerate(stalls)
        for start in _starts(range(number, 300, len(stalls)), each)
    )

    for first, start in enumerate(starts):
        assert bisect_left(starts, start + 1 - 1e-9) - first <= RATE + BURST


def _starts(slots: range, stalls: list[tuple[float, float]]) -> list[float]:
    """Return when a process that stalls starts the items of its slots."""
    pace, ends_at, blocked = Pace(), 0.0, list[tuple[float, float]]()
    for pause, length in stalls:
        blocked.append((ends_at + pause, ends_at + pause + length))
        ends_at += pause + length
    starts: list[float] = []
    for slot in slots:
        at = max([slot / RATE, *(end for begin, end in blocked if begin <= slot / RATE < end)])
        if not pace.has_missed(slot / RATE, at, late_max=LATE_MAX):
            starts.append(at)
    return starts


def test_a_process_that_is_always_late_starts_one_item_a_second() -> None:
    """It must make progress, and must not exceed the rate for that."""
    pace = Pace()

    instants = [n / 100 for n in range(1_000)]
    starts = [now for now in instants if not pace.has_missed(now - 1, now, late_max=LATE_MAX)]

    assert len(starts) == 9
    assert all(later - earlier >= STALL for earlier, later in pairwise(starts))


def test_claims_allow_for_answers_that_are_always_slow() -> None:
    """Where each commit takes 50 ms, slots of the past would always be over on arrival."""
    pace = Pace()

    for _ in range(5):
        pace.received(1.05, claimed_at=1.0)

    assert 0.05 < pace.delay < 0.1


def test_a_single_slow_answer_wastes_no_slots() -> None:
    """A slot in the future, while there are free ones now, would be wasted."""
    pace = Pace()

    pace.received(100.0, claimed_at=1.0)

    assert pace.delay < LATE_MAX
    assert pace.delay < DELAY_MAX.total_seconds()
