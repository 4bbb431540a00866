"""What a field of a lane's policy is: its type, default, range and meaning.

The fields themselves are those of `Lane` and `Backoff`, each annotated with a `FieldRule`.
Validation, SQL parameters, REST types, command line and reference page are derived from these
annotations.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from math import isfinite
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from penstock.base.errors import InvalidInput

COUNT_MAX = 2**31  # Beyond every CHECK, and more than an integer column can hold.
DURATION_MAX = timedelta(days=365_000)  # Beyond every CHECK, within what an interval can hold.

UNITS = {
    "day": timedelta(days=1),
    "hour": timedelta(hours=1),
    "minute": timedelta(minutes=1),
    "second": timedelta(seconds=1),
}


@dataclass(frozen=True, slots=True)
class FieldRule:
    """What the type of a policy field cannot say. Limits are inclusive, as the table's CHECK."""

    meaning: str
    _: dataclasses.KW_ONLY
    low: float | timedelta | None = None
    high: float | timedelta | None = None
    range: str | None = None  # In words, where it is more than two limits.
    length_max: int | None = None  # Of a string over REST.
    setting: str | None = None  # The field of Settings that new lanes take it from.


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyField:
    """One field of a policy. `name` is its column; `path` is where a nested field is in Lane."""

    name: str
    path: tuple[str, ...]
    type: type[bool | int | float | str | timedelta | dict[str, Any]]
    choices: tuple[str, ...]
    is_optional: bool
    default: object
    rule: FieldRule

    def to_json(self, value: object) -> object:
        """Return a value as `set_lane` takes it, or raise InvalidInput if its type is wrong.

        The range is checked by the database.
        """
        if self.type is timedelta:
            if not isinstance(value, timedelta):
                raise InvalidInput(self.name, "must be a duration")
            if abs(value) > DURATION_MAX:
                raise InvalidInput(self.name, "is longer than any policy allows")
            return f"{value.total_seconds():.6f} seconds"
        if self.is_structure:
            return self._to_plain(value)
        if not self._has_type(value):
            raise InvalidInput(self.name, f"must be {self._type_text()}, not {value!r:.50}")
        return value

    @property
    def is_structure(self) -> bool:
        """Whether the value has parts: JSON in the table and on the command line."""
        return get_origin(self.type) is dict

    def from_column(self, value: Any) -> Any:
        """Return what the table has as Lane has it."""
        if value is None or not self.is_structure:
            return value
        return msgspec.json.decode(value, type=self.type)

    def _to_plain(self, value: object) -> object:
        """Return a structure in plain types, without parts that are None; an empty one is None."""
        if value is None:
            return None
        try:
            parts = msgspec.convert(msgspec.to_builtins(value), self.type)
        except (TypeError, ValueError) as refused:
            raise InvalidInput(self.name, f"is not valid: {refused}") from refused
        return _without_none(msgspec.to_builtins(parts)) or None

    def range_text(self) -> str:
        """Return which values are allowed, in words."""
        if self.rule.range is not None:
            return self.rule.range
        if self.choices:
            return f"{', '.join(self.choices[:-1])} or {self.choices[-1]}"
        if self.type is bool:
            return "true or false"
        limits = f"{_limit(self.rule.low)} to {_limit(self.rule.high)}"
        return f"{limits}, or none" if self.is_optional else limits

    def _has_type(self, value: object) -> bool:
        """Return whether the column can hold the value; the database would not name the field."""
        if value is None:
            return self.is_optional
        if self.type is int:
            return isinstance(value, int) and not isinstance(value, bool) and abs(value) < COUNT_MAX
        if self.type is float:
            return (
                isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
            )
        return isinstance(value, self.type)

    def _type_text(self) -> str:
        if self.type is int:
            return "a whole number"
        return "a number" if self.type is float else self.range_text()


def policy_fields(of: Any) -> dict[str, PolicyField]:
    """Return the fields of a dataclass that have a FieldRule as annotation, by name, in order.

    A dataclass within it is flattened: its fields get its name as a prefix, as their columns do.
    """
    return {field.name: field for field in _walk(of, ())}


def policy_table(fields: dict[str, PolicyField]) -> str:
    """Return the fields as a Markdown table for the reference."""
    rows = (
        f"| `{field.name}` | {_shown(field.default)} | {_listed(field)} | {field.rule.meaning} |"
        for field in fields.values()
    )
    return "\n".join(("| field | default | range | meaning |", "| --- | --- | --- | --- |", *rows))


def _walk(of: Any, path: tuple[str, ...]) -> Iterator[PolicyField]:
    hints = get_type_hints(of, include_extras=True)
    for each in dataclasses.fields(of):
        hint = hints[each.name]
        if dataclasses.is_dataclass(hint):
            yield from _walk(hint, (*path, each.name))
        elif get_origin(hint) is Annotated:
            plain, rule = get_args(hint)
            yield _field((*path, each.name), plain, rule, default=each.default)


def _field(path: tuple[str, ...], plain: Any, rule: FieldRule, *, default: object) -> PolicyField:
    parts = get_args(plain)
    is_literal, is_optional = get_origin(plain) is Literal, NoneType in parts
    return PolicyField(
        name="_".join(path),
        path=path,
        type=str if is_literal else parts[0] if is_optional else plain,
        choices=parts if is_literal else (),
        is_optional=is_optional,
        default=default,
        rule=rule,
    )


def _limit(value: float | timedelta | None) -> str:
    """Return a limit as `10,000`, `0.001` or `1 day`."""
    if not isinstance(value, timedelta):
        return f"{value:,}"
    if not value:
        return "0"
    unit, count = _in_largest_unit(value)
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"


def _listed(field: PolicyField) -> str:
    """Return the range as a table's cell."""
    if field.choices:
        return ", ".join(f"`{choice}`" for choice in field.choices)
    return "yes, no" if field.type is bool else field.range_text()


def _shown(value: object) -> str:
    """Return a default as `penstock lane show` prints it."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case timedelta():
            unit, count = _in_largest_unit(value)
            return f"{count}{unit[0]}"
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def _in_largest_unit(value: timedelta) -> tuple[str, int]:
    """Return the largest unit of which this is a whole number, and the number; 0 is in seconds."""
    fitting = (unit for unit, size in UNITS.items() if value and not value % size)
    unit = next(fitting, "second")
    return unit, value // UNITS[unit]


def _without_none(parts: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        name: {each: value for each, value in part.items() if value is not None}
        for name, part in parts.items()
    }
