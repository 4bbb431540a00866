"""`penstock slots config`: show and change the versions of a pool's rule."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import click
from msgspec import UNSET, UnsetType

from penstock.base.errors import InvalidInput
from penstock.calendar.calendar import Calendar
from penstock.console.database import ask, data_dir_option, operator
from penstock.console.output import json_option, print_json, print_rows
from penstock.console.values import BOOLEANS, parse_duration, read_json
from penstock.domains.slots.commands.typed_options import (
    name_argument,
    naming_options,
    print_wire,
    readable,
    utf8,
)
from penstock.domains.slots.config import (
    Config,
    Spacing,
    list_configs,
    read_config,
    set_config,
)
from penstock.domains.slots.wire import to_wire_config

FIELDS = ("max_per_window", "window_size", "spacing", "horizon", "strict")


@dataclass(slots=True, kw_only=True)
class Changes:
    """The given fields; None keeps the present value."""

    max_per_window: int | None = None
    window_size: timedelta | None = None
    spacing: Spacing | None = None
    horizon: timedelta | None = None
    strict: bool | None = None


@click.group()
def config() -> None:
    """Show and change a pool's rule."""


@config.command()
@name_argument
@data_dir_option
@json_option
def show(*, name: str, data_dir: Path | None, as_json: bool) -> None:
    """Show a pool's active version, with the keys of `set`; NAME is default if omitted."""
    found = ask(data_dir, lambda db: read_config(db, name))
    print_wire(to_wire_config(found), as_json=as_json)


@config.command("list")
@data_dir_option
@json_option
def list_(*, data_dir: Path | None, as_json: bool) -> None:
    """List the active version of every pool."""
    _print_table(ask(data_dir, list_configs), as_json=as_json)


@config.command()
@name_argument
@data_dir_option
@json_option
def versions(*, name: str, data_dir: Path | None, as_json: bool) -> None:
    """List all versions of a pool's rule, the newest first; NAME is default if omitted."""
    _print_table(ask(data_dir, lambda db: list_configs(db, name)), as_json=as_json)


@config.command("set")
@click.argument("name", callback=utf8)
@click.argument("words", nargs=-1, metavar="KEY=VALUE...")
@click.option(
    "--calendar",
    "calendar_file",
    metavar="FILE|none",
    help="File with opening hours as JSON, or none to remove them.",
)
@data_dir_option
@json_option
def set_(
    *,
    name: str,
    words: tuple[str, ...],
    calendar_file: str | None,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Create a new version, such as: max_per_window=100 window_size=4s spacing=even horizon=30d.

    Omitted keys keep their value; a new pool needs the first two. Durations are 500ms, 4s, 5m, 1h,
    2d or PT4S. Existing slots stay where they are (see: penstock slots reflow).
    """
    changes = parse_changes(words)
    calendar = _read_calendar(calendar_file)
    if not words and calendar is UNSET:
        raise InvalidInput("changes", "give at least one key=value, or --calendar")
    with naming_options():
        made = ask(
            data_dir,
            lambda db: set_config(
                db,
                name,
                who=operator(),
                max_per_window=changes.max_per_window,
                window_size=changes.window_size,
                spacing=changes.spacing,
                horizon=changes.horizon,
                calendar=calendar,
                is_strict=changes.strict,
            ),
        )
    print_wire(to_wire_config(made), as_json=as_json)


def parse_changes(words: Iterable[str]) -> Changes:
    """Parse `key=value` words; the domain validates the values."""
    changes = Changes()
    seen: set[str] = set()
    for word in words:
        field, found, value = word.partition("=")
        if not found:
            raise InvalidInput(field, "must look like key=value")
        if field in seen:
            raise InvalidInput(field, "is given twice")
        seen.add(field)
        match field:
            case "max_per_window":
                changes.max_per_window = _whole(field, value)
            case "window_size":
                changes.window_size = parse_duration(value, field=field)
            case "spacing":
                changes.spacing = _spacing(value)
            case "horizon":
                changes.horizon = parse_duration(value, field=field)
            case "strict":
                changes.strict = _truth(field, value)
            case _:
                known = ", ".join(FIELDS)
                raise InvalidInput(field, f"is not part of a pool's rule; known: {known}")
    return changes


def _whole(field: str, value: str) -> int:
    # int() also accepts 1_000 and +5, which are more likely typing errors.
    if not (value.isascii() and value.removeprefix("-").isdecimal()):
        raise InvalidInput(field, f"{value!r:.60} is not a whole number")
    return int(value[:20])


def _truth(field: str, value: str) -> bool:
    if value.lower() not in BOOLEANS:
        raise InvalidInput(field, f"{value!r:.60} is neither true nor false")
    return BOOLEANS[value.lower()]


def _spacing(value: str) -> Spacing:
    for known in get_args(Spacing):
        if value == known:
            return known
    raise InvalidInput("spacing", f"{value!r:.60} is neither even nor random")


def _read_calendar(file: str | None) -> Calendar | UnsetType | None:
    """Return a calendar, None to remove it, UNSET to keep the present one."""
    if file is None:
        return UNSET
    return None if file == "none" else read_json(file, Calendar, field="--calendar")


def _print_table(configs: list[Config], *, as_json: bool) -> None:
    if as_json:
        for each in configs:
            print_json(to_wire_config(each))
        return
    print_rows([_row(each) for each in configs], as_json=False, none="there are no pools")


def _row(found: Config) -> dict[str, Any]:
    columns = readable(to_wire_config(found))
    shown = ("config_name", "version", "active", *FIELDS, "calendar", "effective_from")
    zone = None if found.calendar is None else found.calendar.time_zone
    return {name: columns[name] for name in shown} | {"calendar": zone}
