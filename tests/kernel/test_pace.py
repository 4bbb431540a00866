"""The worker's own look at the rate: starts stay spaced even after a stall."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.pace import Pace

RATE = 100.0
BURST = 10


def test_starts_that_are_on_time_are_not_delayed() -> None:
    """The claim has spaced them already; a second delay would waste the rate."""
    pace = Pace()

    turns = [pace.turn(n / RATE, rate=RATE, burst=BURST) for n in range(1000)]

    assert turns == [n / RATE for n in range(1000)]


@given(st.lists(st.floats(min_value=0, max_value=3), min_size=1, max_size=400))
def test_no_second_holds_more_than_rate_and_burst(arrivals: list[float]) -> None:
    """A garbage collection or a swapped-out process makes many items late at once."""
    pace = Pace()

    turns = [pace.turn(now, rate=RATE, burst=BURST) for now in sorted(arrivals)]

    assert all(turn >= now for turn, now in zip(turns, sorted(arrivals), strict=True))
    assert turns == sorted(turns)
    for first in turns:
        in_second = [turn for turn in turns if first <= turn < first + 1 - 1e-9]
        assert len(in_second) <= RATE + BURST
