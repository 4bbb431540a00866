"""Read slots: one, a page of them, a heat map of a pool, and the moves of reflows."""

from dataclasses import dataclass
from datetime import datetime

from penstock.base.errors import InvalidInput
from penstock.calendar.instant import check_instant
from penstock.domains.slots.errors import UnknownPool, UnknownSlot
from penstock.domains.slots.slot import Slot
from penstock.postgres.pool import Queries, Row
from penstock.postgres.statement import statement

READ_SLOT = statement(__package__, "read_slot.sql")
LIST_SLOTS = statement(__package__, "list_slots.sql")
LIST_MOVES = statement(__package__, "list_moves.sql")
HEAT_MAP = statement(__package__, "heat_map.sql")

BUCKETS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """An interval of a heat map: how many slots it has, and how many of them are taken."""

    starts_at: datetime
    capacity: int
    booked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A slot that a reflow moved."""

    move_id: int
    reflow_id: int
    event_id: str
    pool: str
    moved_from: datetime
    moved_to: datetime
    moved_at: datetime


async def read_slot(db: Queries, event_id: str) -> Slot:
    """Return an event's slot; raises UnknownSlot."""
    row = await db.fetchrow(READ_SLOT, event_id)
    if row is None:
        raise UnknownSlot(event_id)
    return _slot(row)


async def read_item_slot(db: Queries, item_id: int) -> Slot | None:
    """Return the slot that an item has taken because its lane names a pool, if it has one."""
    row = await db.fetchrow(READ_SLOT, f"item:{item_id}")  # As take_due_instants names it.
    return None if row is None else _slot(row)


async def list_slots(
    db: Queries,
    pool: str,
    *,
    from_at: datetime,
    until_at: datetime,
    created_from: datetime,
    after: tuple[datetime, int],
    limit: int,
) -> list[Slot]:
    """Return slots scheduled in [from_at, until_at), by window and position, after `after`."""
    bounds = {"from": from_at, "until": until_at, "createdFrom": created_from, "after": after[0]}
    for name, at in bounds.items():
        check_instant(at, name)
    arguments = (from_at, until_at, created_from, *after, limit)
    return [_slot(row) for row in await db.fetch(LIST_SLOTS, pool, *arguments)]


async def list_moves(db: Queries, *, after: int, reflow_id: int | None, limit: int) -> list[Move]:
    """Return moves in the order they were made, after the one with the id `after`."""
    return [
        Move(**dict(row.items())) for row in await db.fetch(LIST_MOVES, after, reflow_id, limit)
    ]


async def heat_map(
    db: Queries, pool: str, *, from_at: datetime, until_at: datetime, buckets: int
) -> list[Bucket]:
    """Return how full a pool is, in buckets of equal length; runs over a week old may be gone."""
    check_instant(from_at, "from")
    check_instant(until_at, "until")
    if until_at <= from_at:
        raise InvalidInput("until", "must be after from")
    if not 1 <= buckets <= BUCKETS_MAX:
        raise InvalidInput("buckets", f"must be from 1 to {BUCKETS_MAX:,}")
    rows = await db.fetch(HEAT_MAP, pool, from_at, until_at, buckets)
    if not rows:
        raise UnknownPool(pool)
    return [Bucket(**dict(row.items())) for row in rows]


def _slot(row: Row) -> Slot:
    fields = {name: value for name, value in row.items() if name != "pool_id"}
    return Slot(**fields)
