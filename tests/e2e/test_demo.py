"""`penstock demo` as a process: figures and plot, on a temporary database."""

import json
from pathlib import Path

from tests.e2e.command import penstock

PNG_HEAD = b"\x89PNG\r\n"


def test_the_demo_loses_and_repeats_nothing_and_plots_the_rate(tmp_path: Path) -> None:
    """The limit is reported, not asserted: only the benchmark can show that it is kept."""
    options = ("--items", "3000", "--rate", "2000", "--out", "flow.png")
    with penstock("demo", *options, "--json", folder=tmp_path) as demo:
        figures = json.loads(demo.wait_for(r"^\{.*\}$").group(0))
        assert demo.wait() == 0

    assert (figures["accepted"], figures["done"]) == (3000, 3000)
    assert (figures["lost"], figures["repeated"]) == (0, 0)
    assert (tmp_path / "flow.png").read_bytes().startswith(PNG_HEAD)


def test_the_demo_prints_its_figures(dsn: str, tmp_path: Path) -> None:
    environment = {"PENSTOCK_DATABASE_URL": dsn}
    with penstock("demo", "--items", "500", folder=tmp_path, environment=environment) as demo:
        demo.wait_for("items per second")
        demo.wait_for(r"^lost +0$")
        demo.wait_for(r"^repeated +0$")
        assert demo.wait() == 0
