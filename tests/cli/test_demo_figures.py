"""The arithmetic of the demo's figures."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as some

from penstock.cli.demo.figures import Record, peak, rates, sliding, summarise

instants = some.lists(some.integers(0, 5000).map(lambda milliseconds: milliseconds / 1000)).map(
    sorted
)


@given(instants)
def test_the_peak_is_that_of_the_busiest_window(given: list[float]) -> None:
    expected = max((sum(a <= b < a + 1.0 for b in given) for a in given), default=0)

    assert abs(peak(given) - expected) <= max(Counter(given).values(), default=0)
    assert all(count <= peak(given) for _, count in sliding(given))


def test_a_steady_flow_has_a_steady_rate() -> None:
    flow = [number / 128 for number in range(1281)]

    assert peak(flow) == 128
    assert set(rates(flow, width=1.0)) == {128}


def test_an_item_without_a_start_is_lost_and_one_with_two_is_repeated() -> None:
    record = Record()
    for item_id in (1, 2, 2, 3):
        record.note(item_id, 0.1 * item_id)

    figures = summarise(record, [1, 2, 3, 4], done=3, rate=10, burst=1)

    assert (figures.accepted, figures.done, figures.lost, figures.repeated) == (4, 3, 1, 1)
    assert not figures.is_complete
