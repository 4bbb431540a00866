"""What commands print on standard output: aligned text for people, JSON lines for programs."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
import msgspec

from penstock.base.errors import InvalidInput

if TYPE_CHECKING:
    from rich.progress import Progress

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, one value per line."
)

ABSENT = "-"


def print_json(value: object) -> None:
    """Print one value as one line of JSON; durations and instants are ISO 8601."""
    click.echo(msgspec.json.encode(value).decode())


def print_rows(rows: Sequence[Mapping[str, Any]], *, as_json: bool, none: str) -> None:
    """Print rows as a table under their keys, or as JSON lines; print `none` if there are none."""
    if as_json:
        for row in rows:
            print_json(row)
    elif rows:
        head = [name.replace("_", " ") for name in rows[0]]
        print_lines([head, *([text(value) for value in row.values()] for row in rows)])
    else:
        click.echo(none, err=True)


def print_record(record: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the fields of one record, one per line, or as one line of JSON."""
    if as_json:
        print_json(record)
    else:
        print_lines([[name, text(value)] for name, value in record.items()])


def print_lines(lines: Sequence[Sequence[str]]) -> None:
    """Print lines in columns that are as wide as their widest cell; nothing is cut off."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def text(value: object) -> str:
    """Return a value as text for people."""
    match value:
        case None:
            return ABSENT
        case bool():
            return "yes" if value else "no"
        case datetime():
            return value.isoformat(sep=" ", timespec="milliseconds")
        case timedelta():
            return duration(value)
        case list() | tuple():
            return ", ".join(map(text, value))  # pyright: ignore[reportUnknownArgumentType]
        case dict() if all(isinstance(each, str) for each in value.values()):  # pyright: ignore[reportUnknownVariableType]
            return "; ".join(f"{name}: {text(each)}" for name, each in value.items()) or ABSENT  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        case msgspec.Raw():
            return bytes(value).decode()
        case float():
            return f"{value:g}"
        case dict():
            return msgspec.json.encode(value).decode()
        case _:
            return str(value)


def duration(value: timedelta) -> str:
    """Return a duration in its largest whole unit, in the form that `lane set` accepts."""
    milliseconds = value / timedelta(milliseconds=1)
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds / size:.0f}{unit}"
    return f"{milliseconds:.15g}ms" if milliseconds else "0s"


def raw(json: str | None) -> msgspec.Raw | None:
    """Return stored JSON text so that it is printed as it is, not as a string."""
    return None if json is None else msgspec.Raw(json.encode())


def without(record: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the record without some of its fields."""
    left_out = set(names)
    return {name: value for name, value in record.items() if name not in left_out}


def confirm(question: str) -> None:
    """Ask for confirmation, and end the command unless the answer is yes.

    Raises InvalidInput if standard input is not a terminal.
    """
    if not sys.stdin.isatty():
        raise InvalidInput("--yes", f"is required without a terminal: {question}")
    if not click.confirm(question, err=True):
        raise click.ClickException("not confirmed, nothing was changed")


def progress_bar() -> "Progress":
    """Return a progress bar on standard error, disabled if that is not a terminal."""
    # Few commands have a bar, and all others would load rich.progress for nothing.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )
