"""The rate against its limit, in the terminal (plotext) and as a PNG (matplotlib)."""

import importlib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from penstock.base.errors import MissingExtra
from penstock.cli.demo.figures import BUCKET_SECONDS, Figures, rates, sliding

INK, MUTED, GRID = "#1f2933", "#7b8794", "#e4e7eb"
FLOW, WINDOW, LIMIT = "#7cc4fa", "#0b69a3", "#e12d39"
TERMINAL_WIDTH_MAX, TERMINAL_HEIGHT, TERMINAL_MARGIN = 110, 18, 8


def require() -> None:
    """Raise MissingExtra before the run instead of after it."""
    if find_spec("plotext") is None or find_spec("matplotlib") is None:
        raise MissingExtra("demo", "the plot of the demo")


def draw_in_terminal(instants: Sequence[float], figures: Figures, *, width: int) -> str:
    """Return the plot as text."""
    # plotext 6 is untyped, and its figure is one global object.
    plotext: Any = importlib.import_module("plotext")
    figure = plotext.figure
    figure.clear()
    figure.plot_size(min(width, TERMINAL_WIDTH_MAX), TERMINAL_HEIGHT)
    figure.theme("colorless")
    columns = min(width, TERMINAL_WIDTH_MAX) - TERMINAL_MARGIN
    step = max(figures.seconds / columns, 0.001)
    flow = rates(instants, width=step)
    figure.draw(figure.bar([n * step for n in range(len(flow))], flow, marker="▒", width=1))
    figure.line(figures.limit, style="heavy")
    figure.title(f"items per second ▒ against the limit ━ of {figures.limit:,}")
    figure.label("seconds", "x")
    figure.ruler("y").lim(0, max(figures.limit, *flow, 1) * 1.1)
    figure.ruler("y").ticks([0, figures.rate], ["0", f"{figures.rate:,}"])
    whole = list(range(0, round(figures.seconds) + 1, max(1, round(figures.seconds / 10))))
    figure.ruler("x").ticks(whole, [str(second) for second in whole])
    return str(figure.build())


def draw_png(instants: Sequence[float], figures: Figures, path: Path) -> None:
    """Write the plot to `path`: the rate in steps of 100 ms and of one second, and the limit."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    with pyplot.rc_context({"font.family": "DejaVu Sans", "font.size": 11}):
        figure, axes = pyplot.subplots(figsize=(11, 5.5), dpi=150)
        figure.subplots_adjust(left=0.085, right=0.97, top=0.79, bottom=0.20)
        _draw_flow(axes, instants, figures)
        _draw_frame(axes)
        _write_captions(figure, figures)
        figure.savefig(path)
        pyplot.close(figure)


def _draw_flow(axes: Any, instants: Sequence[float], figures: Figures) -> None:
    steps = rates(instants)
    edges = [number * BUCKET_SECONDS for number in range(len(steps) + 1)]
    axes.stairs(steps, edges, fill=True, color=FLOW, alpha=0.55, label="starts in 100 ms, times 10")
    windows = sliding(instants)
    axes.plot(
        [end for end, _ in windows],
        [count for _, count in windows],
        color=WINDOW,
        linewidth=2.2,
        label="starts in the last second",
    )
    axes.axhline(figures.limit, color=LIMIT, linewidth=1.6, linestyle=(0, (6, 3)))
    axes.annotate(
        f"limit {figures.limit:,} in any second (rate {figures.rate:,} + burst {figures.burst:,})",
        (1.0, figures.limit),
        xycoords=("axes fraction", "data"),
        xytext=(-4, 6),
        textcoords="offset points",
        ha="right",
        color=LIMIT,
        fontweight="bold",
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5},
    )
    axes.set_xlim(0, max(edges))
    axes.set_ylim(0, max(figures.limit, *steps, 1) * 1.08)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.01, 1.0),
        frameon=False,
        ncols=2,
        labelcolor=INK,
        borderaxespad=0.2,
    )


def _draw_frame(axes: Any) -> None:
    axes.set_xlabel("seconds since the first start", color=MUTED)
    axes.set_ylabel("items per second", color=MUTED)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(axis="y", color=GRID, linewidth=0.9)
    axes.set_axisbelow(True)
    axes.tick_params(colors=MUTED, length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GRID)


def _write_captions(figure: Any, figures: Figures) -> None:
    title = f"{figures.accepted:,} items due at once, started at {figures.rate:,} per second"
    figure.text(0.085, 0.925, title, fontsize=17, fontweight="bold", color=INK)
    figure.text(
        0.085,
        0.865,
        "Penstock, one worker process, one PostgreSQL: the rate is decided in the claim",
        color=MUTED,
    )
    captions = (
        ("accepted", figures.accepted),
        ("done", figures.done),
        ("lost", figures.lost),
        ("repeated", figures.repeated),
        ("busiest second", figures.peak),
        ("mean per second", round(figures.mean_per_second)),
    )
    for number, (name, value) in enumerate(captions):
        at = 0.085 + number * 0.152
        figure.text(at, 0.055, f"{value:,}", fontsize=14, fontweight="bold", color=INK)
        figure.text(at, 0.022, name, fontsize=9.5, color=MUTED)
