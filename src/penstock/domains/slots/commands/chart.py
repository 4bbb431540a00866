"""A text chart of a pool over time: booked, forecast and free slots. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

from rich.text import Text

from penstock.calendar.instant import END_AT, EPOCH
from penstock.domains.slots.inspect import Bucket

HEIGHT = 8  # Rows: enough to show an eighth.
COLUMN_WIDTH_MAX = 12  # A few windows need not fill the line.
MARGIN = 10  # Show a tenth more time, to show what follows the forecast.
AXIS = 7  # Characters left of the first column.

BOOKED, FORECAST, FREE, CLOSED = "█", "▒", "·", " "
STYLES = {BOOKED: "blue", FORECAST: "green", FREE: "dim"}
PLAIN = str.maketrans("█▒·┤│┬─└", "#+.||+-+")  # For terminals with ASCII only.

ZERO, SECOND, DAY = timedelta(0), timedelta(seconds=1), timedelta(days=1)
# Round durations, for the length of columns and the distance of labels.
STEPS = tuple(
    timedelta(microseconds=amount * unit)
    for unit, amounts in (
        (1_000, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
        (1_000_000, (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30)),
        (60_000_000, (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30)),
        (3_600_000_000, (1, 2, 3, 4, 6, 8, 12)),
        (86_400_000_000, (1, 2, 3, 4, 7, 14, 30, 60, 90, 180, 365, 730, 1825, 3650, 7300)),
    )
    for amount in amounts
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The time that a chart shows, in columns of equal length: each one window or several."""

    starts_at: datetime
    column: timedelta
    columns: int

    @property
    def ends_at(self) -> datetime:
        """The end of the last column, at most the end of all windows."""
        return min(END_AT, self.starts_at + self.columns * self.column)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The slots of a column: booked, in the forecast, and free."""

    booked: int
    forecast: int
    free: int

    @property
    def capacity(self) -> int:
        """All slots; zero in closed time."""
        return self.booked + self.forecast + self.free


def span_of(start: datetime, last: datetime, *, window: timedelta, width: int) -> Span:
    """Return the time to show for a forecast from `start` to `last` in `width` characters."""
    starts_at = start - (start - EPOCH) % window
    windows = (last - starts_at) // window + 1
    shown = (windows + max(1, windows // MARGIN)) * window
    shortest = -(-shown // ((width - AXIS) * window)) * window
    column = next((step for step in STEPS if step >= shortest and step % window == ZERO), shortest)
    if column > 2 * shortest:  # For example windows of 7 s, which divide no step below a week.
        column = shortest
    return Span(starts_at=starts_at, column=column, columns=-(-shown // column))


def columns_of(buckets: Iterable[Bucket], *, passed: int, count: int) -> list[Column]:
    """Return columns in which a forecast takes `count` free slots after the first `passed`."""
    columns: list[Column] = []
    for bucket in buckets:
        free = bucket.capacity - bucket.booked
        gone = min(free, passed)
        taken = min(free - gone, count)
        columns.append(Column(booked=bucket.booked, forecast=taken, free=free - gone - taken))
        passed, count = passed - gone, count - taken
    return columns


def draw(columns: Sequence[Column], span: Span, *, width: int) -> Text:
    """Return the chart with its axes; it is readable without colours."""
    each = min(COLUMN_WIDTH_MAX, (width - AXIS) // span.columns)
    highest = max(1, *(column.capacity for column in columns))
    bars = [_bar(column, highest) for column in columns]
    chart = Text()
    for row in reversed(range(HEIGHT)):
        chart.append({HEIGHT - 1: " 100% ┤", HEIGHT // 2 - 1: "  50% ┤"}.get(row, "      │"))
        signs = "".join(bar[row] * each for bar in bars).rstrip()
        for sign, run in groupby(signs):
            chart.append("".join(run), STYLES.get(sign))
        chart.append("\n")
    chart.append_text(_time_axis(span, each, width=width))
    chart.append_text(_legend(columns))
    return chart


def _bar(column: Column, highest: int) -> str:
    """Return one column from the bottom up; each non-zero part has at least one character."""
    rows = ""
    for sign, amount in ((BOOKED, column.booked), (FORECAST, column.forecast), (FREE, column.free)):
        rows += sign * (max(1, round(amount * HEIGHT / highest)) if amount else 0)
    while len(rows) > HEIGHT:
        # Rounding up may give too many characters: shorten the longest part.
        rows = rows.replace(max(rows, key=rows.count), "", 1)
    return rows.ljust(HEIGHT, CLOSED)


def _time_axis(span: Span, each: int, *, width: int) -> Text:
    """Return the axis below the columns, with round instants as labels."""
    length = span.columns * each
    step, label = _ticks(span, length)
    line, names = ["─"] * length, ""
    at = span.starts_at + -(span.starts_at - EPOCH) % step
    while at < span.ends_at:
        place = (at - span.starts_at) * length // (span.columns * span.column)
        if AXIS + place + len(label(at)) <= width:
            line[place] = "┬"
            names = names.ljust(AXIS + place) + label(at)
        at += step
    return Text(f"   0% └{''.join(line)}\n{names}\n")


def _ticks(span: Span, length: int) -> tuple[timedelta, Callable[[datetime], str]]:
    """Return the distance between labels, and how to format them."""
    whole = span.columns * span.column
    for step in STEPS:
        label = _label(step)
        if step * length // whole >= len(label(span.starts_at)) + 2:
            return step, label
    return STEPS[-1], _label(STEPS[-1])


def _label(step: timedelta) -> Callable[[datetime], str]:
    """Return how to format labels at this distance; midnight is shown as the date."""
    if step >= 30 * DAY:
        return lambda at: f"{at:%Y-%m-%d}"
    clock = "%H:%M" if step >= 60 * SECOND else "%H:%M:%S"
    if step < SECOND:
        return lambda at: f"{at:%H:%M:%S}.{at.microsecond // 1000:03}"
    return lambda at: f"{at:%b %d}" if (at - EPOCH) % DAY == ZERO else f"{at:{clock}}"


def _legend(columns: Sequence[Column]) -> Text:
    legend = Text(" " * AXIS)
    for sign, name in ((BOOKED, "booked"), (FORECAST, "this forecast"), (FREE, "free")):
        legend.append(sign * 2, STYLES[sign])
        legend.append(f" {name}   ")
    if any(column.capacity == 0 for column in columns):
        legend.append("blank: closed")
    legend.rstrip()
    return legend
