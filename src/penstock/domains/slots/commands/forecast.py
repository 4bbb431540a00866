"""`penstock slots forecast`: when many requests would be scheduled, with a chart."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
from rich.console import Console

from penstock.console.database import ask, data_dir_option
from penstock.console.output import duration, json_option, print_json, print_record
from penstock.console.values import parse_instant
from penstock.domains.slots.commands.chart import PLAIN, Column, Span, columns_of, draw, span_of
from penstock.domains.slots.commands.typed_options import config_option, lasting, naming_options
from penstock.domains.slots.config import Config, read_config
from penstock.domains.slots.forecast import Forecast
from penstock.domains.slots.forecast import forecast as forecast_slots
from penstock.domains.slots.inspect import heat_map
from penstock.domains.slots.wire import to_wire_forecast
from penstock.postgres.pool import Connection

WIDTH_MAX = 100  # Longer lines are harder to read and not more exact.
WIDTH_MIN = 40
SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """A forecast, its rule, and the data of its chart."""

    found: Forecast
    config: Config
    span: Span
    columns: Sequence[Column]


@click.command()
@click.option("--count", type=int, required=True, help="How many requests.")
@click.option("--from", "from_", metavar="INSTANT", help="From when on; +5m is from now.  [now]")
@config_option
@data_dir_option
@json_option
def forecast(
    *, count: int, from_: str | None, pool: str, data_dir: Path | None, as_json: bool
) -> None:
    """Show when so many requests would be scheduled if they came now; nothing is booked.

    Also draws what is booked and what is free until then.
    """
    from_at = now = datetime.now(UTC)
    if from_ is not None:
        from_at = max(now, parse_instant(from_, field="--from"))
    console = Console(highlight=False)
    width = max(WIDTH_MIN, min(console.width, WIDTH_MAX))
    with naming_options():
        if as_json:
            found = ask(data_dir, lambda db: forecast_slots(db, pool, count=count, from_at=from_at))
            print_json(to_wire_forecast(pool, count, found))
            return
        outlook = ask(
            data_dir, lambda db: _look_ahead(db, pool, count=count, from_at=from_at, width=width)
        )
    _print(outlook, count=count, from_at=from_at, width=width, console=console)


async def _look_ahead(
    db: Connection, pool: str, *, count: int, from_at: datetime, width: int
) -> Outlook:
    config = await read_config(db, pool)
    found = await forecast_slots(db, pool, count=count, from_at=from_at)
    start = min(found.first_at, from_at)
    span = span_of(start, found.last_at, window=config.window_size, width=width)
    buckets = await heat_map(
        db, pool, from_at=span.starts_at, until_at=span.ends_at, buckets=span.columns
    )
    passed = 0
    if found.first_at > span.starts_at:
        # Free slots before the first are in the past, or before the requested time.
        (before,) = await heat_map(
            db, pool, from_at=span.starts_at, until_at=found.first_at, buckets=1
        )
        passed = before.capacity - before.booked
    return Outlook(
        found=found,
        config=config,
        span=span,
        columns=columns_of(buckets, passed=passed, count=count),
    )


def _print(
    outlook: Outlook, *, count: int, from_at: datetime, width: int, console: Console
) -> None:
    shown = to_wire_forecast(outlook.config.pool, count, outlook.found)
    rate = f"{outlook.config.max_per_window:,} per {duration(outlook.config.window_size)}"
    record = {
        "pool": f"{shown.config_name}, {rate}",
        "count": f"{count:,}",
        "first": shown.first,
        "last": shown.last,
        "duration": lasting(outlook.found.last_at - outlook.found.first_at),
        "windows": f"{shown.windows_used:,}",
    }
    wait = outlook.found.first_at - from_at
    if wait >= SECOND:  # Less is the rest of a window, not booked time.
        record["wait"] = f"{lasting(wait - wait % SECOND)} until the first"
    print_record(record, as_json=False)
    chart = draw(outlook.columns, outlook.span, width=width)
    chart.append(f"\n       a column is {lasting(outlook.span.column)}, times are UTC")
    console.print()
    if console.options.ascii_only:
        click.echo(chart.plain.translate(PLAIN))
    else:
        console.print(chart, soft_wrap=True)
