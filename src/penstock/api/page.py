"""Pages by cursor. To the caller a cursor is opaque; to us it is the last id of the page before."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock.api.wire import ID_MAX
from penstock.base.errors import InvalidInput

T = TypeVar("T")


def start_after(cursor: str | None) -> int | None:
    """Return the id that a cursor stands for, or None for the first page."""
    if cursor is None:
        return None
    after = int(cursor)  # Its type has made sure that these are digits.
    if after > ID_MAX:
        raise InvalidInput("after", "is no cursor of ours")
    return after


def cut(
    found: Sequence[T], limit: int, id_of: Callable[[T], int]
) -> tuple[Sequence[T], str | None]:
    """Return at most `limit` of the rows, and the next page's cursor if there were more."""
    if len(found) <= limit:
        return found, None
    return found[:limit], str(id_of(found[limit - 1]))
