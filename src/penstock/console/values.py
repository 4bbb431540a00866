"""Parse values of the command line: durations, instants, amounts, ids, files, a lane's policy."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any, TypeVar

import click
import msgspec

from penstock.base.errors import InvalidInput
from penstock.kernel.lane import FIELDS
from penstock.kernel.policy import PolicyField

UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
ID_MAX = 2**63 - 1
FILE_BYTES_MAX = 1024 * 1024  # Twenty times the largest valid calendar or config of a rail.

T = TypeVar("T")

_SHORT = re.compile(r"(?P<amount>\d+(\.\d+)?)(?P<unit>ms|s|m|h|d)")


def parse_duration(text: str, *, field: str) -> timedelta:
    """Read `500ms`, `30s`, `5m`, `1h`, `2d`, a bare `0`, or ISO 8601 such as `PT30S`."""
    if text == "0":
        return timedelta(0)
    short = _SHORT.fullmatch(text.lower())
    try:
        if short is not None:
            return float(short["amount"]) * UNITS[short["unit"]]
        return msgspec.convert(text.upper(), timedelta)
    except (OverflowError, msgspec.ValidationError):
        reason = f"{text!r} is not a duration such as 500ms, 30s, 5m, 1h, 2d or PT30S"
        raise InvalidInput(field, reason) from None


def parse_instant(text: str, *, field: str) -> datetime:
    """Read ISO 8601 with a time zone, or `+5m` for that long from now."""
    if text.startswith("+"):
        try:
            return datetime.now(UTC) + parse_duration(text[1:], field=field)
        except OverflowError:
            raise InvalidInput(field, "is too far in the future") from None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        reason = f"{text!r} is not an instant such as 2030-01-31T16:00:00Z or +5m"
        raise InvalidInput(field, reason) from None
    if instant.tzinfo is None:
        raise InvalidInput(field, f"{text!r} has no time zone; add Z or +01:00")
    return instant


def parse_when(text: str | None, *, field: str) -> datetime | None:
    """Read an instant as everywhere, or `-1h` for that long ago."""
    if text is None:
        return None
    try:
        if text.startswith("-"):
            return datetime.now(UTC) - parse_duration(text[1:], field=field)
        return parse_instant(text, field=field).astimezone(UTC)
    except OverflowError:
        raise InvalidInput(field, "is too far away") from None


def parse_policy(words: Iterable[str]) -> dict[str, Any]:
    """Read `key=value` words as changes of a lane's policy; the database checks ranges."""
    changes: dict[str, Any] = {}
    for word in words:
        field, found, value = word.partition("=")
        if not found:
            raise InvalidInput(field, "must look like key=value")
        if field not in FIELDS:
            known = ", ".join(sorted(FIELDS))
            raise InvalidInput(field, f"is not part of a lane's policy; known: {known}")
        if field in changes:
            raise InvalidInput(field, "is given twice")
        changes[field] = _policy_value(field, value)
    return changes


def _policy_value(name: str, value: str) -> object:
    field = FIELDS[name]
    if field.is_optional and value.lower() == "none":
        return None
    if field.type is timedelta:
        return parse_duration(value, field=name)
    if field.type is bool:
        if value.lower() not in BOOLEANS:
            raise InvalidInput(name, f"{value!r} is neither true nor false")
        return BOOLEANS[value.lower()]
    if field.is_structure:
        return _structure(field, value)
    return value if field.type is str else _number(field, value)


def _structure(field: PolicyField, value: str) -> object:
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        raise InvalidInput(field.name, f"{value!r} is not JSON (or none)") from None


def _number(field: PolicyField, value: str) -> int | float:
    is_whole = field.type is int
    try:
        number = int(value) if is_whole else float(value)
    except ValueError:
        kind = "a whole number" if is_whole else "a number"
        hint = " (or none)" if field.is_optional else ""
        raise InvalidInput(field.name, f"{value!r} is not {kind}{hint}") from None
    if not isfinite(number) or abs(number) > ID_MAX:
        raise InvalidInput(field.name, f"{value!r} is out of range")
    return number


def read_json(file: str, kind: type[T], *, field: str) -> T:
    """Return what a JSON file contains; - is standard input. Raises InvalidInput with the field."""
    try:
        with click.open_file(file, "rb") as source:
            content = source.read(FILE_BYTES_MAX + 1)
    except OSError as unreadable:
        reason = f"{file!r} cannot be read: {unreadable.strerror}"
        raise InvalidInput(field, reason) from unreadable
    if len(content) > FILE_BYTES_MAX:
        raise InvalidInput(field, f"has more than {FILE_BYTES_MAX:,} bytes")
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as refused:
        reason, _, path = str(refused).partition(" - at `$.")
        raise InvalidInput(f"{field}.{path.rstrip('`')}" if path else field, reason) from refused


ITEM_ID = click.IntRange(1, ID_MAX)
LIMIT = click.IntRange(1, 10_000)


def parse_amount(text: str | None, *, field: str) -> Decimal | None:
    """Return the exact amount of an option, if it is given; raises InvalidInput."""
    if text is None:
        return None
    try:
        return Decimal(text)
    except InvalidOperation:
        raise InvalidInput(field, f"{text!r} is not an amount") from None
