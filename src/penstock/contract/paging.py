"""Pages by cursor, for every endpoint that lists: read one row more than a page, and take a page.

To the caller a cursor is opaque; here it is what identifies the last row of the page before.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from msgspec import Meta

from penstock.base.errors import InvalidInput
from penstock.base.paging import cut_page

PAGE_MAX = 1_000  # Enough for any script, and still one short query.
ID_MAX = 2**63 - 1  # Of a bigint.

Limit = Annotated[int, Meta(ge=1, le=PAGE_MAX)]

T = TypeVar("T")


def read_id(cursor: str | None) -> int | None:
    """Return the id in a cursor of digits, or None for the first page; raises InvalidInput."""
    if cursor is None:
        return None
    if len(cursor) > len(str(ID_MAX)) or not is_whole_number(cursor) or int(cursor) > ID_MAX:
        raise InvalidInput("after", "is not a valid cursor")
    return int(cursor)


def is_whole_number(text: str) -> bool:
    """Return whether a text is a number in plain digits, without sign, point or exponent."""
    return text.isascii() and text.isdecimal()


def take_page(
    rows: Sequence[T], limit: int, cursor_of: Callable[[T], object]
) -> tuple[Sequence[T], str | None]:
    """Return up to `limit` of the rows, and the next page's cursor if there are more rows."""
    return cut_page(list(rows), limit, lambda row: str(cursor_of(row)))
