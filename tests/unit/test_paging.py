"""Pages by cursor: no row is lost or shown twice, and a strange cursor is refused."""

import re
from pathlib import Path

import pytest

import penstock
from penstock.base.errors import InvalidInput
from penstock.base.paging import cut_page
from penstock.contract.paging import ID_MAX, read_id, take_page


@pytest.mark.parametrize("count", [0, 1, 3, 4, 7])
def test_all_pages_together_have_every_row_once(count: int) -> None:
    rows = list(range(1, count + 1))
    seen: list[int] = []
    cursor: str | None = "0"

    while cursor is not None:
        after = read_id(cursor) or 0
        page, cursor = take_page(rows[after : after + 4], 3, lambda row: row)
        seen += page

    assert seen == rows


def test_the_last_page_has_no_cursor() -> None:
    """Else a caller would have to ask once more to learn that there is nothing."""
    assert take_page([1, 2, 3], 3, lambda row: row) == ([1, 2, 3], None)
    assert take_page([1, 2, 3, 4], 3, lambda row: row) == ([1, 2, 3], "3")


def test_a_search_that_ended_early_continues_where_it_ended() -> None:
    """A filter that found too little has not seen all rows."""
    assert cut_page([3, 7], 3, str, looked_until="9") == ([3, 7], "9")
    assert cut_page([3, 7, 8, 9], 3, str, looked_until="9") == ([3, 7, 8], "8")


def test_a_page_is_cut_in_one_place() -> None:
    """Cuts of their own differed in what they returned as the cursor of the last page.

    Commands may show less than they have read.
    """
    source = Path(penstock.__file__).parent
    cuts = re.compile(r"\[: ?limit\]|\[limit - 1\]")

    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if "commands" not in path.parts and cuts.search(path.read_text(encoding="utf-8"))
    }

    assert found == {"base/paging.py"}


def test_no_cursor_is_the_first_page() -> None:
    assert read_id(None) is None
    assert read_id(str(ID_MAX)) == ID_MAX


@pytest.mark.parametrize("cursor", ["", "-1", "x", "1.5", "²", str(ID_MAX + 1), "9" * 10_000])
def test_an_invalid_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidInput, match="after: is not a valid cursor"):
        read_id(cursor)
