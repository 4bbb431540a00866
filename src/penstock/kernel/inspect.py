"""Read items, attempts, dead letters, audit entries and depths. Never writes."""

from dataclasses import dataclass, fields
from datetime import UTC, date, datetime
from typing import Literal

import msgspec

from penstock.base.paging import cut_page
from penstock.kernel.errors import UnknownItem
from penstock.kernel.item import ItemId
from penstock.kernel.lane import read_lane
from penstock.postgres.pool import Queries, Row
from penstock.postgres.statement import statement

READ_ITEM = statement(__package__, "read_item.sql")
READ_ATTEMPTS = statement(__package__, "read_attempts.sql")
FIND_BY_KEY = statement(__package__, "find_by_key.sql")
LIST_ITEMS = statement(__package__, "list_items.sql")
LIST_DEAD = statement(__package__, "list_dead.sql")
LIST_BLOCKED = statement(__package__, "list_blocked.sql")
LIST_AUDIT = statement(__package__, "list_audit.sql")
MEASURE_LANES = statement(__package__, "measure_lanes.sql")
BALANCE = statement(__package__, "balance.sql")

DEPTH_MAX = 100_000  # Counting stops here: no alert needs more, and a scrape stays cheap.
LOOKED_AT_MAX = 1_000  # Items that one filtered page looks at: as many as the largest page has.
ID_MAX = 2**63 - 1
HEADS_MAX = 1_000  # Dead or held heads of a lane that are looked at, for the same reason.

ItemState = Literal[
    "scheduled", "ready", "parked", "leased", "held", "dead", "cancelled", "done"
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFilter:
    """Which items of a lane: by state, order key, and the instant when they were accepted."""

    state: ItemState | None = None
    order_key: str | None = None
    since: datetime | None = None  # Accepted then or later.
    until: datetime | None = None  # Accepted before.

    @property
    def is_exact(self) -> bool:
        """Whether an index finds exactly the items that match."""
        return self.state is None and self.since is None and self.until is None


ALL = ItemFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemView:
    """An item as an operator sees it. While it waits, `due_at` is when it is tried next."""

    id: ItemId
    lane: str
    key: str | None
    order_key: str | None
    state: str
    reason: str | None
    due_at: datetime
    not_after: datetime | None
    limit_keys: dict[str, str] | None
    created_at: datetime
    attempts: int
    payload: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemPage:
    """Items, the newest first; `next` is the `after` of the next page, None on the last."""

    items: list[ItemView]
    next: ItemId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    """One attempt as it was recorded, or a late result that changed nothing.

    `resolved_by` is the operator who resolved the item; for all others it is None.
    """

    attempt: int
    outcome: str
    claimed_at: datetime | None
    settled_at: datetime
    retry_at: datetime | None
    duration_ms: int | None
    reason: str | None
    result: str | None
    token: int
    resolved_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadView:
    """A dead letter."""

    id: ItemId
    lane: str
    key: str | None
    order_key: str | None
    died_at: datetime
    attempts: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditView:
    """One audited change."""

    audit_id: int
    audited_at: datetime
    who: str
    action: str
    subject: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneDepth:
    """How many items of a lane are in each state, counted up to DEPTH_MAX.

    `due` are those of `ready` that are due. `oldest_due_seconds` is of items that are ready, or
    parked behind a dead or held head; `blocked_keys` are the order keys with such a head and
    followers. `expired_items` are those of `expired_leases`, which no sweeper has ended yet.
    """

    lane: str
    ready: int
    due: int
    parked: int
    leased: int
    held: int
    dead: int
    oldest_due_seconds: float
    blocked_keys: int
    expired_leases: int
    expired_items: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedKey:
    """An order key whose head is dead or held, and the first item that waits behind it."""

    lane: str
    order_key: str
    head_id: ItemId
    head_state: str
    follower_id: ItemId
    due_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """The counts of the conservation invariant. Reads whole tables: for tests and audits."""

    accepted: int
    ready: int
    parked: int
    leased: int
    held: int
    done: int
    dead: int
    cancelled: int

    @property
    def is_even(self) -> bool:
        """True when no item is lost or counted twice."""
        placed = self.ready + self.parked + self.leased + self.held
        return self.accepted == placed + self.done + self.dead + self.cancelled


async def read_item(db: Queries, item_id: ItemId) -> ItemView | None:
    """Return one item with its payload, or None."""
    row = await db.fetchrow(READ_ITEM, item_id)
    return None if row is None else _to_item(row)


async def find_item(db: Queries, lane: str, key: str) -> ItemView:
    """Return the item with this key in the lane, or raise UnknownItem."""
    found = await read_lane(db, lane)
    item_id = await db.fetchval(FIND_BY_KEY, found.lane_id, key)
    item = None if item_id is None else await read_item(db, item_id)
    if item is None:
        raise UnknownItem(key)
    return item


async def read_attempts(db: Queries, item_id: ItemId) -> list[AttemptView]:
    """Return the attempts of an item in their order, late results included."""
    rows = await db.fetch(READ_ATTEMPTS, item_id)
    return [AttemptView(**dict(row.items())) for row in rows]


async def list_items(
    db: Queries,
    lane: str,
    *,
    only: ItemFilter = ALL,
    after: ItemId | None = None,
    limit: int = 100,
) -> ItemPage:
    """Return a page of a lane's items without payloads, the newest first; `after` continues it.

    With a filter by state or time, LOOKED_AT_MAX items are looked at, so that a page may have
    fewer than `limit` items, or none, and still a `next`.
    """
    found = await read_lane(db, lane)
    rows = await db.fetch(
        LIST_ITEMS, found.lane_id, min(after or ID_MAX, _id_bound(only.until)), limit + 1,
        only.state, only.order_key, only.since, only.until,
        limit + 1 if only.is_exact else max(limit + 1, LOOKED_AT_MAX),
    )  # fmt: skip
    items = [_to_item(row) for row in rows if row["id"] is not None]
    page, following = cut_page(
        items, limit, lambda item: item.id, looked_until=rows[0]["looked_until"]
    )
    return ItemPage(items=page, next=following)


def _id_bound(until: datetime | None) -> int:
    """Return an id above those accepted before `until`.

    Ids of a day start at day << 32. They may lag behind the clock, and are ahead of it only if the
    transaction that accepted the item began on the day before.
    """
    if until is None:
        return ID_MAX
    days = (until.astimezone(UTC).date() - date(1970, 1, 1)).days
    return max(0, days + 2) << 32


async def list_dead(
    db: Queries, *, lane: str | None = None, after: ItemId | None = None, limit: int = 100
) -> list[DeadView]:
    """Return a page of dead letters, the oldest first; `after` continues it."""
    lane_id = None if lane is None else (await read_lane(db, lane)).lane_id
    rows = await db.fetch(LIST_DEAD, lane_id, after or 0, limit)
    return [DeadView(**dict(row.items())) for row in rows]


async def list_audit(
    db: Queries, *, subject: str | None = None, before: int | None = None, limit: int = 100
) -> list[AuditView]:
    """Return a page of audited changes, the newest first; `before` continues it."""
    rows = await db.fetch(LIST_AUDIT, subject, before, limit)
    return [AuditView(**dict(row.items())) for row in rows]


async def measure_lanes(db: Queries) -> list[LaneDepth]:
    """Return the depth of every lane; counts stop at DEPTH_MAX."""
    rows = await db.fetch(MEASURE_LANES, DEPTH_MAX, HEADS_MAX)
    return [LaneDepth(**dict(row.items())) for row in rows]


async def list_blocked(db: Queries) -> list[BlockedKey]:
    """Return the order keys with followers behind a dead or held head, by lane and due instant.

    Up to HEADS_MAX dead heads and as many held items of each lane are looked at.
    """
    rows = await db.fetch(LIST_BLOCKED, HEADS_MAX)
    return [BlockedKey(**dict(row.items())) for row in rows]


async def balance(db: Queries, lane: str | None = None) -> Balance:
    """Count every item of one lane, or of all, in one snapshot."""
    lane_id = None if lane is None else (await read_lane(db, lane)).lane_id
    row = await db.fetchrow(BALANCE, lane_id)
    assert row is not None, "an aggregate has one row"
    return Balance(**dict(row.items()))


def _to_item(row: Row) -> ItemView:
    values = {each.name: row[each.name] for each in fields(ItemView)}
    if values["limit_keys"] is not None:
        values["limit_keys"] = msgspec.json.decode(values["limit_keys"])
    return ItemView(**values)
