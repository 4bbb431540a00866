"""Which events a subscription matches, decided in Python: the expected result for the database.

Filters are parsed by the production code; only the evaluation is written a second time.
"""

from decimal import Decimal
from typing import cast

from penstock.domains.webhooks.match import (
    Scalar,
    _All,
    _Any,
    _decimal,
    _Node,
    _Not,
    _read_filter,
    _Test,
)

_MISSING = object()
_ORDERS = {"eq": {0}, "gt": {1}, "gte": {0, 1}, "lt": {-1}, "lte": {-1, 0}}


def patterns_for(event_type: str) -> list[str]:
    """Return all patterns that match a type, to be looked up by equality.

    `order.*` matches order.paid and order.paid.eu, but not order itself.
    """
    parts = event_type.split(".")
    prefixes = [".".join(parts[:count]) for count in range(len(parts) - 1, 0, -1)]
    return [event_type, *(f"{prefix}.*" for prefix in prefixes), "*"]


def matches(filter: object, data: object) -> bool:  # noqa: A002
    """Say whether data passes a filter, as the database would; both are decoded JSON."""
    return _holds(_read_filter(filter), data)


def _holds(node: _Node, data: object) -> bool:
    match node:
        case _Test():
            return _passes(node, _find(data, node.path))
        case _Not(part):
            return not _holds(part, data)
        case _All(parts):
            return all(_holds(part, data) for part in parts)
        case _Any(parts):
            return any(_holds(part, data) for part in parts)


def _find(data: object, path: tuple[str, ...]) -> object:
    for segment in path:
        if not isinstance(data, dict):
            return _MISSING
        data = cast("dict[str, object]", data).get(segment, _MISSING)
    return data


def _passes(test: _Test, found: object) -> bool:
    operand = test.operand
    if isinstance(operand, tuple):
        return any(_order(found, each) == 0 for each in operand)
    match test.operator:
        case "exists":
            return found is not _MISSING
        case "contains":
            elements = cast("list[object]", found) if isinstance(found, list) else []
            return any(_order(element, operand) == 0 for element in elements)
        case "starts_with":
            return isinstance(found, str) and found.startswith(cast("str", operand))
        case _:
            return _order(found, operand) in _ORDERS[test.operator]


def _order(found: object, wanted: Scalar) -> int | None:
    """Return -1, 0 or 1, or None for what cannot be compared."""
    if found is None or wanted is None or isinstance(found, bool) or isinstance(wanted, bool):
        return 0 if found is wanted else None
    if isinstance(found, str) and isinstance(wanted, str):
        return (found > wanted) - (found < wanted)
    if isinstance(found, int | float | Decimal) and isinstance(wanted, Decimal):
        number = _decimal(found)
        return (number > wanted) - (number < wanted)
    return None
