"""`penstock demo` as a process: the table and the plot, on a temporary database."""

import json
from pathlib import Path
from typing import Any

from tests.conftest import temporal_command
from tests.e2e.command import penstock

PNG_HEAD = b"\x89PNG\r\n"
PAYMENTS = 200
FEW = 50  # Temporal takes longer for each.
TABLE = {
    "scheduled": PAYMENTS,
    "executed": PAYMENTS,
    "paid_once": PAYMENTS,
    "paid_twice": 0,
    "lost": 0,
    "events_delivered": PAYMENTS,
    "mails_sent": PAYMENTS // 10,
}


def test_each_payment_of_the_demo_is_paid_and_notified_once(tmp_path: Path) -> None:
    """The limit is reported, not asserted: only the benchmark can show that it is kept."""
    figures = run_demo(tmp_path, "--out", "flow.png")

    assert figures["workers_killed"] == 0
    assert table_of(figures) == TABLE
    assert (tmp_path / "flow.png").read_bytes().startswith(PNG_HEAD)


def test_a_plot_that_cannot_be_saved_is_refused_before_the_run(tmp_path: Path) -> None:
    """Found out afterwards, it would cost the minutes of the run and its table."""
    with penstock("demo", "--out", "missing/flow.png", folder=tmp_path) as demo:
        assert demo.wait() == 2

    assert demo.lines == ["penstock: --out: there is no folder missing"]


def test_the_table_of_the_demo_is_the_same_if_workers_are_killed(tmp_path: Path) -> None:
    figures = run_demo(tmp_path, "--kill")

    assert figures["workers_killed"] > 0
    assert table_of(figures) == TABLE


def test_on_temporal_each_payment_has_one_workflow_with_one_run(tmp_path: Path) -> None:
    """A second run in Temporal's own list would be a payment that was executed twice."""
    temporal_command()

    figures = run_demo(tmp_path, "--temporal", payments=FEW)

    assert (figures["workflows"], figures["runs_most"]) == (FEW, 1)
    assert (figures["paid_once"], figures["paid_twice"], figures["lost"]) == (FEW, 0, 0)
    assert (figures["events_delivered"], figures["mails_sent"]) == (FEW, FEW // 10)


def run_demo(folder: Path, *options: str, payments: int = PAYMENTS) -> dict[str, Any]:
    """Run the demo to its end, and return its figures."""
    arguments = ("demo", "--payments", str(payments), "--rate", "100", "--json", *options)
    with penstock(*arguments, folder=folder) as demo:
        figures = json.loads(demo.wait_for(r"^\{.*\}$").group(0))
        assert demo.wait() == 0
    return figures


def table_of(figures: dict[str, Any]) -> dict[str, int]:
    return {name: figures[name] for name in TABLE}
