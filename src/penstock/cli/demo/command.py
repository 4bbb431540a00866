"""The verb `demo`: options, a temporary database, the progress bar, the table and the plots."""

import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from penstock.app import Penstock
from penstock.base.log import configure
from penstock.base.settings import settings
from penstock.cli.demo import picture
from penstock.cli.demo.figures import Figures
from penstock.cli.demo.flow import Flow, run_flow
from penstock.console.exits import Exit
from penstock.console.output import json_option, print_json, print_lines, progress_bar
from penstock.console.process import Stop, freeze_loaded_objects, run_until_stopped
from penstock.postgres.embedded import embedded_server

BURST_SHARE = 20  # 50 ms of the rate, for starts that are late.


@click.command()
@click.option(
    "--items",
    type=click.IntRange(1, 10_000_000),
    default=100_000,
    show_default=True,
    help="How many items.",
)
@click.option(
    "--rate",
    type=click.IntRange(1, 100_000),
    default=5_000,
    show_default=True,
    help="Items per second.",
)
@click.option(
    "--burst",
    type=click.IntRange(1, 100_000),
    help="Items at once after a quiet time.  [a twentieth of the rate]",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    default=Path("penstock-demo.png"),
    show_default=True,
    help="Path of the plot.",
)
@json_option
def demo(*, items: int, rate: int, burst: int | None, out: Path, as_json: bool) -> None:
    """Run a burst of due items through a rate-limited lane, and plot the rate against the limit.

    Uses a temporary embedded PostgreSQL, or its own lane in the database of PENSTOCK_DATABASE_URL.
    Needs the extra `demo`.
    """
    picture.require()
    if settings().log_level == "info":
        configure("warning", settings().log_format)
    chosen_burst = burst or max(1, rate // BURST_SHARE)
    flows: list[Flow] = []

    async def run(_stop: Stop) -> None:
        with progress_bar() as progress:
            async with _database() as app:
                freeze_loaded_objects()
                flow = await run_flow(
                    app, items=items, rate=rate, burst=chosen_burst, progress=progress
                )
        flows.append(flow)

    run_until_stopped(run, needs_reader=True)
    if not flows:
        raise KeyboardInterrupt
    (flow,) = flows
    _report(flow, out, as_json=as_json)
    if not flow.figures.is_complete:
        sys.exit(Exit.FAILED)


@asynccontextmanager
async def _database() -> AsyncGenerator[Penstock]:
    """Yield an app on the configured database, or on a temporary one."""
    if settings().database_url is not None:
        yield Penstock()
        return
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        async with embedded_server(Path(folder)) as server:
            yield Penstock(server.dsn)


def _report(flow: Flow, out: Path, *, as_json: bool) -> None:
    figures = flow.figures
    picture.draw_png(flow.instants, figures, out)
    if as_json:
        print_json(
            asdict(figures)
            | {
                "limit": figures.limit,
                "is_complete": figures.is_complete,
                "is_above_limit": figures.is_above_limit,
                "picture": str(out),
            }
        )
        return
    click.echo(picture.draw_in_terminal(flow.instants, figures, width=Console().width))
    print_lines(
        [
            ["accepted", f"{figures.accepted:,}"],
            ["done", f"{figures.done:,}"],
            ["lost", f"{figures.lost:,}"],
            ["repeated", f"{figures.repeated:,}"],
            ["busiest second", f"{figures.peak:,} of {figures.limit:,} allowed{_remark(figures)}"],
            ["mean", f"{figures.mean_per_second:,.0f} per second over {figures.seconds:.1f} s"],
            ["picture", str(out)],
        ]
    )


def _remark(figures: Figures) -> str:
    """Return a remark if the limit was exceeded; the plot shows when."""
    return ": ABOVE THE LIMIT" if figures.is_above_limit else ""
