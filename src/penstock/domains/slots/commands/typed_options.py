"""Shared by the `slots` commands: options, output, and errors that name options.

The domain's errors name fields of the REST API; on the command line these are options.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import click
import msgspec

from penstock.base.errors import InvalidInput
from penstock.console.output import print_json, print_record
from penstock.domains.slots.config import DEFAULT
from penstock.domains.slots.errors import SlotConflict

SECOND = timedelta(seconds=1)
UNITS = (("d", 86_400), ("h", 3_600), ("m", 60))
_TYPED = {
    "body": "--file",
    "calendar": "--calendar",
    "configName": "NAME",
    "count": "--count",
    "eventId": "EVENT_ID",
    "freezeUntil": "--freeze-until",
    "from": "--from",
    "maxPerWindow": "max_per_window",
    "requestedTime": "--at",
    "until": "--until",
    "windowSize": "window_size",
}


def utf8(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Reject arguments that are not UTF-8: they contain surrogates, which no database accepts."""
    try:
        (value or "").encode()
    except UnicodeEncodeError:
        raise click.BadParameter("is not UTF-8", context, parameter) from None
    return value


event_argument = click.argument("event_id", callback=utf8)
name_argument = click.argument("name", default=DEFAULT, callback=utf8)
config_option = click.option(
    "--config",
    "pool",
    metavar="NAME",
    default=DEFAULT,
    show_default=True,
    callback=utf8,
    help="Which pool.",
)


@contextmanager
def naming_options() -> Generator[None]:
    """Raise errors with the names of options, and add the existing slot to a conflict."""
    try:
        yield
    except InvalidInput as refused:
        name, dot, rest = refused.field.removeprefix("requests[0].").partition(".")
        raise InvalidInput(_TYPED.get(name, name) + dot + rest, refused.reason) from refused
    except SlotConflict as conflict:
        shown = conflict.existing
        conflict.add_note(
            f"existing slot: {shown['scheduledTime']}, requested for {shown['requestedTime']}"
            f" in pool {shown['configName']!r}"
        )
        raise


def print_wire(answer: msgspec.Struct, *, as_json: bool) -> None:
    """Print an answer of the REST API, as JSON or as a record for people."""
    if as_json:
        print_json(answer)
    else:
        print_record(readable(answer), as_json=False)


def readable(answer: msgspec.Struct) -> dict[str, Any]:
    """Return the fields for people: milliseconds as a duration, nested structs as JSON."""
    fields: Mapping[str, Any] = msgspec.structs.asdict(answer)
    return dict(_readable(name, value) for name, value in fields.items())


def _readable(name: str, value: object) -> tuple[str, object]:
    if name.endswith("_ms") and isinstance(value, int):
        return name.removesuffix("_ms"), lasting(timedelta(milliseconds=value))
    if isinstance(value, msgspec.Struct):
        return name, msgspec.Raw(msgspec.json.encode(value))
    return name.removesuffix("_ms"), value


def lasting(length: timedelta) -> str:
    """Return a duration in all its units, such as `11h 6m 39.96s`."""
    if length < timedelta(0):  # A reflow may move slots to earlier times.
        return f"-{lasting(-length)}"
    if timedelta(0) < length < SECOND:
        return f"{length / timedelta(milliseconds=1):g}ms"
    rest = length // SECOND
    parts: list[str] = []
    for unit, size in UNITS:
        amount, rest = divmod(rest, size)
        if amount:
            parts.append(f"{amount}{unit}")
    seconds = f"{rest}.{length.microseconds:06}".rstrip("0").rstrip(".")
    if seconds != "0" or not parts:
        parts.append(f"{seconds}s")
    return " ".join(parts)
