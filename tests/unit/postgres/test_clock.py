"""The database's clock, learnt from answers that took any time on their way."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.clock import FakeClock
from penstock.postgres.clock import DRIFT, DatabaseClock

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
AHEAD = NOON.timestamp() - 1_000.0  # The database's clock minus the monotonic one, in these tests.


def answer(clock: DatabaseClock, *, sent_at: float, way: float, back: float) -> None:
    """Let the clock see one statement, with so many seconds on each way."""
    received_at = sent_at + way
    answered_at = received_at + 0.001
    clock.observe(
        sent_at=sent_at,
        received_at=received_at + AHEAD,
        answered_at=answered_at + AHEAD,
        read_at=answered_at + back,
    )


def error_of(clock: DatabaseClock) -> float:
    """Return by how many seconds the clock is really wrong."""
    return clock.to_monotonic(NOON) - 1_000.0


def test_before_the_first_answer_it_is_the_machines_clock() -> None:
    clock = DatabaseClock(local=FakeClock(NOON))

    assert clock.microseconds() == NOON.timestamp() * 1_000_000
    assert clock.offset is None


def test_an_answer_that_is_read_late_does_not_shift_the_clock() -> None:
    """A process that gets no CPU reads its answer late; the server was not late."""
    clock = DatabaseClock()
    answer(clock, sent_at=1.0, way=0.001, back=0.001)

    answer(clock, sent_at=1.1, way=0.001, back=5.0)

    assert abs(error_of(clock)) <= clock.error <= 0.0015 + 5.2 * DRIFT


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 2), st.floats(0, 2)), min_size=1, max_size=30)
)
def test_the_clock_is_never_wrong_by_more_than_it_says(
    answers: list[tuple[float, float, float]],
) -> None:
    clock = DatabaseClock()
    sent_at = 0.0

    for pause, way, back in answers:
        answer(clock, sent_at=sent_at, way=way, back=back)
        sent_at += way + back + pause

        assert abs(error_of(clock)) <= clock.error + 1e-6


def test_a_jump_of_the_databases_clock_is_followed_at_once() -> None:
    """As after a failover to a machine whose clock is off."""
    clock = DatabaseClock()
    answer(clock, sent_at=1.0, way=0.001, back=0.001)

    clock.observe(sent_at=2.0, received_at=AHEAD - 58.0, answered_at=AHEAD - 58.0, read_at=2.001)

    assert clock.to_monotonic(NOON) == pytest.approx(1_060.0, abs=0.01)


def test_the_offset_is_how_far_the_machines_clock_is_ahead() -> None:
    minutes = timedelta(minutes=10)
    clock = DatabaseClock()
    local = FakeClock(NOON)
    clock.local = local
    clock.observe(sent_at=0.0, received_at=AHEAD, answered_at=AHEAD, read_at=0.0)
    seconds = clock.offset
    local.advance(minutes)

    assert seconds is not None
    assert clock.offset == pytest.approx(seconds + minutes.total_seconds(), abs=5)
