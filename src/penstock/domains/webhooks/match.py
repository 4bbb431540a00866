"""Which events a subscription wants: patterns for their type, and a filter on their data. Pure.

The database decides: it looks patterns up by equality and runs a filter as a jsonpath predicate.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Literal, NoReturn, cast, get_args

import msgspec

from penstock.base.errors import InvalidInput

TYPE_LENGTH_MAX = 255
SEGMENTS_MAX = 10  # Each costs a lookup per event.

FILTER_BYTES_MAX = 8 * 1024
FILTER_DEPTH_MAX = 5
CONDITIONS_MAX = 50
VALUES_MAX = 100  # Of one `in`; each is a comparison per event.
PATH_SEGMENTS_MAX = 64  # Data is not nested deeper.
NUMBER_DIGITS_MAX = 1_000  # Far above any amount, and far below what PostgreSQL's numeric holds.

# ----------------------------------------------------------------------------------------- types

_SEGMENTS = r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+){0,%d}"
_TYPE = re.compile(_SEGMENTS % (SEGMENTS_MAX - 1))
_PREFIX = re.compile(_SEGMENTS % (SEGMENTS_MAX - 2))  # Something has to follow it.
_WHAT_A_TYPE_IS = (
    f"1 to {SEGMENTS_MAX} parts of letters, digits, _ and -, joined by dots, "
    f"{TYPE_LENGTH_MAX} characters at most"
)


def check_type(event_type: str, field: str = "type") -> None:
    """Raise InvalidInput unless this can be the type of an event, such as `order.paid`."""
    if len(event_type) > TYPE_LENGTH_MAX or not _TYPE.fullmatch(event_type):
        raise InvalidInput(field, f"must be {_WHAT_A_TYPE_IS}")


def check_pattern(pattern: str, field: str = "pattern") -> None:
    """Raise InvalidInput unless this is a type, the beginning of one with `.*` after it, or `*`."""
    if pattern == "*":
        return
    rule = _PREFIX if pattern.endswith(".*") else _TYPE
    if len(pattern) > TYPE_LENGTH_MAX or not rule.fullmatch(pattern.removesuffix(".*")):
        raise InvalidInput(
            field,
            f"must be *, or an event type, or its first parts and .*; a type is {_WHAT_A_TYPE_IS}",
        )


# --------------------------------------------------------------------------------------- filters
#
# A filter is a JSON object; an event passes if everything in it holds:
#
#   {"kind": "invoice",                         equal to a text, number, boolean or null
#    "amount": {"gte": 100, "lt": 500},         all operators of a field must hold
#    "customer.country": {"in": ["DE", "AT"]},  a path into objects
#    "any": [{…}, {…}], "all": [{…}], "not": {…}}
#
# A key that begins with / is a JSON pointer: "/a.b/c" is field c in field "a.b", "/any" is a field
# called any; ~1 stands for / and ~0 for ~. Paths lead through objects, never into arrays.
#
# Everything is true or false. A field that is missing, or of another type than what it is compared
# with, makes a condition false; `ne`, `nin` and `not` are true exactly when `eq`, `in` and the
# inner filter are not. Numbers compare as decimals and exactly, texts by code points.

Scalar = str | Decimal | bool | None
Operator = Literal["eq", "gt", "gte", "lt", "lte", "in", "exists", "starts_with", "contains"]
NegatedOperator = Literal["ne", "nin"]

OPERATORS: tuple[str, ...] = (*get_args(Operator), *get_args(NegatedOperator))


def compile_filter(filter: object) -> str:  # noqa: A002  The word of the API.
    """Return a filter as a jsonpath predicate, which is never null: `data @@ path::jsonpath`.

    Takes decoded JSON, best from `decode_filter`. Raises InvalidInput naming what is wrong.
    """
    return "strict " + _predicate(_read_filter(filter))


def decode_filter(text: str | bytes) -> object:
    """Decode JSON without losing a digit, and refuse a key that occurs twice in one object."""
    try:
        return json.loads(
            text,
            parse_int=Decimal,
            parse_float=Decimal,
            parse_constant=_refuse_constant,
            object_pairs_hook=_object_without_repeats,
        )
    except (ValueError, InvalidOperation, RecursionError) as refused:
        raise InvalidInput("filter", "is not JSON") from refused


@dataclass(frozen=True, slots=True)
class _Test:
    path: tuple[str, ...]
    operator: Operator
    operand: "Scalar | tuple[Scalar, ...]"


@dataclass(frozen=True, slots=True)
class _All:
    parts: tuple["_Node", ...]


@dataclass(frozen=True, slots=True)
class _Any:
    parts: tuple["_Node", ...]


@dataclass(frozen=True, slots=True)
class _Not:
    part: "_Node"


_Node = _Test | _All | _Any | _Not


# ------------------------------------------------------------------------------ reading a filter


def _read_filter(given: object) -> _Node:
    _check_size(given)
    node = _read(given, "filter", depth=1)
    if sum(1 for _ in _tests(node)) > CONDITIONS_MAX:
        raise InvalidInput("filter", f"has more than {CONDITIONS_MAX} conditions")
    return node


def _check_size(given: object) -> None:
    try:
        size_bytes = len(msgspec.json.encode(given))
    except (TypeError, ValueError, RecursionError) as refused:
        raise InvalidInput("filter", "is not JSON") from refused
    if size_bytes > FILTER_BYTES_MAX:
        raise InvalidInput("filter", f"has more than {FILTER_BYTES_MAX:,} bytes")


def _tests(node: _Node) -> Iterator[_Test]:
    match node:
        case _Test():
            yield node
        case _Not(part):
            yield from _tests(part)
        case _All(parts) | _Any(parts):
            for part in parts:
                yield from _tests(part)


def _read(given: object, where: str, *, depth: int) -> _Node:
    if not isinstance(given, dict):
        raise InvalidInput(where, "must be an object")
    if depth > FILTER_DEPTH_MAX:
        raise InvalidInput(where, f"is nested deeper than {FILTER_DEPTH_MAX} filters")
    if not given and depth > 1:
        raise InvalidInput(where, "must not be empty")
    entries = cast("dict[object, object]", given)
    return _All(tuple(_read_entry(key, entries[key], where, depth=depth) for key in entries))


def _read_entry(key: object, value: object, where: str, *, depth: int) -> _Node:
    if not isinstance(key, str):
        raise InvalidInput(where, "has a key that is not text")
    where = f"{where}.{key:.60}"
    match key:
        case "any":
            return _Any(_read_each(value, where, depth=depth))
        case "all":
            return _All(_read_each(value, where, depth=depth))
        case "not":
            return _Not(_read(value, where, depth=depth + 1))
        case _:
            return _read_field(_read_path(key, where), value, where)


def _read_each(given: object, where: str, *, depth: int) -> tuple[_Node, ...]:
    if not isinstance(given, list) or not given:
        raise InvalidInput(where, "must be a list of filters, and not empty")
    filters = cast("list[object]", given)
    return tuple(
        _read(each, f"{where}[{index}]", depth=depth + 1) for index, each in enumerate(filters)
    )


def _read_path(key: str, where: str) -> tuple[str, ...]:
    if key.startswith("/"):
        segments = [_unescape(segment, where) for segment in key[1:].split("/")]
    else:
        segments = key.split(".")
        if not all(segments):
            raise InvalidInput(where, "has an empty part; write a path with dots in names as /a.b")
    if len(segments) > PATH_SEGMENTS_MAX:
        raise InvalidInput(where, f"has more than {PATH_SEGMENTS_MAX} parts")
    return tuple(_check_text(segment, where) for segment in segments)


def _unescape(segment: str, where: str) -> str:
    if re.search(r"~(?![01])", segment):
        raise InvalidInput(where, "has a ~ that is not ~0 or ~1")
    return segment.replace("~1", "/").replace("~0", "~")


def _read_field(path: tuple[str, ...], value: object, where: str) -> _Node:
    if isinstance(value, list):
        raise InvalidInput(where, "is a list; use the operator in, or contains")
    if not isinstance(value, dict):
        return _Test(path, "eq", _read_scalar(value, where))
    if not value:
        raise InvalidInput(where, "must not be empty")
    operands = cast("dict[object, object]", value)
    return _All(tuple(_read_test(path, name, operands[name], where=where) for name in operands))


def _read_test(path: tuple[str, ...], operator: object, operand: object, *, where: str) -> _Node:
    at = f"{where}.{operator!s:.60}"
    match operator:
        case "eq" | "contains":
            return _Test(path, cast("Operator", operator), _read_scalar(operand, at))
        case "ne":
            return _Not(_Test(path, "eq", _read_scalar(operand, at)))
        case "gt" | "gte" | "lt" | "lte":
            return _Test(path, cast("Operator", operator), _read_ordered(operand, at))
        case "in":
            return _Test(path, "in", _read_scalars(operand, at))
        case "nin":
            return _Not(_Test(path, "in", _read_scalars(operand, at)))
        case "starts_with":
            if not isinstance(operand, str):
                raise InvalidInput(at, "must be a text")
            return _Test(path, "starts_with", _check_text(operand, at))
        case "exists":
            if not isinstance(operand, bool):
                raise InvalidInput(at, "must be true or false")
            test = _Test(path, "exists", None)
            return test if operand else _Not(test)
        case _:
            raise InvalidInput(
                at, f"is not an operator; known: {', '.join(OPERATORS)}. Write a path as a.b"
            )


def _read_ordered(operand: object, where: str) -> Scalar:
    value = _read_scalar(operand, where)
    if value is None or isinstance(value, bool):
        raise InvalidInput(where, "must be a number or a text")
    return value


def _read_scalars(operand: object, where: str) -> tuple[Scalar, ...]:
    if not isinstance(operand, list) or not 1 <= len(cast("list[object]", operand)) <= VALUES_MAX:
        raise InvalidInput(where, f"must be a list of 1 to {VALUES_MAX} values")
    values = cast("list[object]", operand)
    return tuple(_read_scalar(value, f"{where}[{index}]") for index, value in enumerate(values))


def _read_scalar(value: object, where: str) -> Scalar:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _check_text(value, where)
    if not isinstance(value, int | float | Decimal):
        raise InvalidInput(where, "must be a text, a number, true, false or null")
    number = _decimal(value)
    if not number.is_finite():
        raise InvalidInput(where, "is no finite number")
    _, digits, exponent = number.as_tuple()
    if len(digits) + abs(int(exponent)) > NUMBER_DIGITS_MAX:
        raise InvalidInput(where, f"is a number of more than {NUMBER_DIGITS_MAX:,} digits")
    return number


def _check_text(text: str, where: str) -> str:
    if "\0" in text:
        raise InvalidInput(where, "holds a NUL character, which no event does")
    return text


def _decimal(number: float | Decimal) -> Decimal:
    # The digits of a float that people see, not the binary fraction behind them.
    return Decimal(repr(number)) if isinstance(number, float) else Decimal(number)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _object_without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise InvalidInput("filter", "has the same key twice in one object")
    return entries


# ---------------------------------------------------------------------------- in the database

_SYMBOLS = {"eq": "==", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


def _predicate(node: _Node) -> str:
    match node:
        case _Test():
            # Strict mode takes no array for its elements, but a missing field makes it unknown.
            # A filter around the whole drops what is unknown, so that exists() is true or false.
            return f"exists($ ? ({_condition(node)}))"
        case _Not(part):
            return f"!({_predicate(part)})"
        case _All(()):
            return "(1 == 1)"
        case _All(parts):
            return "(" + " && ".join(map(_predicate, parts)) + ")"
        case _Any(parts):
            return "(" + " || ".join(map(_predicate, parts)) + ")"


def _condition(test: _Test) -> str:
    field = "@" + "".join(f".{_quoted(segment)}" for segment in test.path)
    operand = test.operand
    if isinstance(operand, tuple):
        return " || ".join(f"{field} == {_literal(each)}" for each in operand)
    match test.operator:
        case "exists":
            return f"exists({field})"
        case "contains":
            return f"exists({field}[*] ? (@ == {_literal(operand)}))"
        case "starts_with":
            return f"{field} starts with {_literal(operand)}"
        case _:
            return f"{field} {_SYMBOLS[test.operator]} {_literal(operand)}"


def _literal(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    return _quoted(value) if isinstance(value, str) else str(value)


def _quoted(text: str) -> str:
    # The escapes of JSON are among those of jsonpath, and nothing but ASCII is left to go wrong.
    return json.dumps(text)
