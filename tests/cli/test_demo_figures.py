"""The arithmetic of the demo's figures, and the plots of them."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from penstock.cli.demo.figures import Counted, Figures, Wanted, peak, rates, summarise
from penstock.cli.demo.flow import Flow
from penstock.cli.demo.picture import draw_in_terminal, draw_png
from penstock.cli.demo.tally import Tally

WANTED = Wanted(payments=3, events=3, mails=1, rate=10, limit=12)

instants = some.lists(some.integers(0, 5000).map(lambda milliseconds: milliseconds / 1000)).map(
    sorted
)


def tally(*ids: str) -> Tally:
    counted = Tally()
    for each in ids:
        counted.note(each)
    return counted


def summary(*, paid: Tally, executed: int = 3, runs: Tally | None = None) -> Figures:
    counted = Counted(
        scheduled=["a", "b", "c"],
        executed=executed,
        paid=paid,
        events=tally("1", "2", "2", "3"),
        mails=tally("m"),
        workers_killed=0,
        runs=runs,
    )
    return summarise(counted, WANTED, instants=[0.0, 0.1, 0.2])


@given(instants)
def test_the_peak_is_that_of_the_busiest_window(given: list[float]) -> None:
    expected = max((sum(a <= b < a + 1.0 for b in given) for a in given), default=0)

    assert abs(peak(given) - expected) <= max(Counter(given).values(), default=0)


def test_a_steady_flow_has_a_steady_rate() -> None:
    flow = [number / 128 for number in range(1280)]

    assert peak(flow) == 128
    assert set(rates(flow, begin=0.0, end=9.9, width=1.0)) == {128}


def test_the_demo_is_complete_if_each_payment_was_paid_once() -> None:
    """An event that comes again with the same id is no second event."""
    figures = summary(paid=tally("a", "b", "c"))

    assert (figures.paid_once, figures.paid_twice, figures.lost) == (3, 0, 0)
    assert (figures.events_delivered, figures.events_again) == (3, 1)
    assert figures.is_complete


@pytest.mark.parametrize(
    ("runs", "is_complete"),
    [(tally("a", "b", "c"), True), (tally("a", "b"), False), (tally("a", "b", "c", "c"), False)],
    ids=["one each", "one is missing", "one has two"],
)
def test_on_temporal_each_payment_has_one_workflow_with_one_run(
    *, runs: Tally, is_complete: bool
) -> None:
    figures = summary(paid=tally("a", "b", "c"), runs=runs)

    assert figures.is_complete == is_complete


def test_a_payment_that_the_ledger_lacks_is_lost_and_one_with_two_bookings_is_paid_twice() -> None:
    figures = summary(paid=tally("a", "b", "b"))

    assert (figures.paid_once, figures.paid_twice, figures.lost) == (1, 1, 1)
    assert not figures.is_complete


@pytest.mark.parametrize(
    "missing", [{"scheduled": 2}, {"executed": 2}, {"events_delivered": 2}, {"mails_sent": 2}]
)
def test_the_demo_is_not_complete_if_anything_is_missing_or_too_many(
    missing: dict[str, int],
) -> None:
    figures = summary(paid=tally("a", "b", "c"))

    assert not replace(figures, **missing).is_complete


def test_a_demo_in_which_nothing_was_executed_is_plotted_too(tmp_path: Path) -> None:
    """What went wrong is in the table; the plot must not hide it behind a traceback."""
    flow = Flow(figures=summary(paid=tally(), executed=0), planned=[], executed=[], killed=[])

    draw_png(flow, tmp_path / "flow.png")

    assert (tmp_path / "flow.png").exists()
    assert "payments per second" in draw_in_terminal(flow, width=80)
