"""Apply an operator's verb to many items: count them first, then go through them page by page."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from penstock.kernel.errors import StateConflict
from penstock.kernel.guard import Verb, check_lane
from penstock.kernel.item import ItemId
from penstock.kernel.lane import read_lane
from penstock.postgres.pool import Connection, Queries
from penstock.postgres.statement import statement

COUNT_SELECTED = statement(__package__, "count_selected.sql")
PAGE_SELECTED = statement(__package__, "page_selected.sql")

SelectableState = Literal["held", "dead", "waiting"]
Decide: TypeAlias = Callable[[Connection, ItemId], Awaitable[None]]

PAGE_ITEMS = 500  # One transaction of about a second; its locks hold up nobody for longer.


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which items of a lane. `before` is when they were held or died, or are due.

    `waiting` items are unclaimed and not parked. `only_heads` is for skip: heads of order keys.
    """

    lane: str
    state: SelectableState
    reason: str | None = None
    order_key: str | None = None
    before: datetime | None = None
    only_heads: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """One page of decisions. `unchanged` items were refused: they had another state by then, or
    their deadline has passed.

    `last_id` continues with the next page; None if there is none.
    """

    changed: int
    unchanged: int
    last_id: ItemId | None


async def count_selected(
    db: Queries, selection: Selection, verb: Verb, *, owner: str | None = None
) -> int:
    """Return how many items match now; raises LaneIsOwned if the lane guards the verb."""
    check_lane(await read_lane(db, selection.lane), verb, owner=owner)
    return int(await db.fetchval(COUNT_SELECTED, *await _conditions(db, selection)))


async def decide_page(
    db: Connection,
    selection: Selection,
    decide: Decide,
    *,
    after: ItemId | None = None,
    limit: int = PAGE_ITEMS,
) -> Decided:
    """Call `decide` for each of the next matching items, in one transaction.

    An item that `decide` refuses with StateConflict is left as it is.
    """
    async with db.transaction():
        conditions = await _conditions(db, selection)
        rows = await db.fetch(PAGE_SELECTED, *conditions, after or 0, limit)
        ids = [ItemId(row["id"]) for row in rows]
        changed = sum([await _is_decided(db, item_id, decide) for item_id in ids])
    return Decided(
        changed=changed,
        unchanged=len(ids) - changed,
        last_id=ids[-1] if len(ids) == limit else None,
    )


async def _conditions(db: Queries, selection: Selection) -> tuple[object, ...]:
    lane = await read_lane(db, selection.lane)
    return (
        lane.lane_id,
        selection.state,
        selection.reason,
        selection.order_key,
        selection.before,
        selection.only_heads,
    )


async def _is_decided(db: Connection, item_id: ItemId, decide: Decide) -> bool:
    try:
        async with db.transaction():
            await decide(db, item_id)
    except StateConflict:
        return False
    return True
