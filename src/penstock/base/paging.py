"""Cut what was found to one page. Endpoints read cursors with `contract.paging`."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
C = TypeVar("C")


def cut_page(
    found: list[T], limit: int, cursor_of: Callable[[T], C], *, looked_until: C | None = None
) -> tuple[list[T], C | None]:
    """Return up to `limit` of what was found, and the cursor of the next page; None on the last.

    `found` has more than `limit` entries if there is a next page. A search that may end before it
    has found so many passes in `looked_until` the cursor at which to continue.
    """
    if len(found) <= limit:
        return found, looked_until
    return found[:limit], cursor_of(found[limit - 1])
