"""Take a batch of due items under one lease. One statement, one row written per batch."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic

import msgspec

from penstock.kernel.item import ItemId
from penstock.postgres.pool import Connection
from penstock.postgres.statement import statement

CLAIM = statement(__package__, "claim.sql")

# How far ahead a rate-limited lane hands out slots: longer than a claim takes, so that items wait
# for their slot and not for the claim; short, so that what a crash delays is little.
SLOTS_AHEAD = timedelta(milliseconds=200)

REWIND_INTERVAL = 0.05  # Seconds. What was committed late, or put back, waits no longer than this.
REWIND_SHARE = 0.05  # Rewinding may take this share of a worker's time, however long it takes.
# Producers take this long from their `now` to their commit, most of them. What one of them has not
# committed yet must not fall behind the cursor; with a backlog it would wait anyway.
COMMIT_TIME = timedelta(milliseconds=100)
BEGINNING = (datetime(1, 1, 1, tzinfo=UTC), 0)


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """One item of a lease, before its payload is decoded. `start_in` is in seconds from the claim.

    A struct for its speed, as Item.
    """

    id: ItemId
    due_at: datetime
    attempt: int  # Attempts before this one, snoozed ones included.
    forgiven: int  # Attempts before this one that do not count.
    key: str | None
    order_key: str | None
    not_after: datetime | None
    payload: str
    start_in: float
    gathered: object = None  # What the kind's `gather` has made of the payload.


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """What one claim took. The token fences every later write about it."""

    token: int
    claimed_at: datetime
    items: list[Claimed]
    age: float = 0.0  # Seconds from `claimed_at` until the server had found the items.
    more_in: float | None = 0.0  # Seconds until it is worth asking again; None if nothing waits.


@dataclass(slots=True)
class Cursor:
    """Where a worker's last claim ended: a hint past the dead entries at the head of the index.

    Whatever lands behind it is found by a rewind. With a snapshot held open for long, a rewind
    walks over everything done since; so it is the less frequent the longer it takes.
    """

    position: tuple[datetime, int] = BEGINNING
    rewind_at: float = field(default_factory=monotonic)

    def start(self) -> tuple[datetime, int]:
        """Return where the next claim is to start."""
        return BEGINNING if self.is_rewinding() else self.position

    def is_rewinding(self) -> bool:
        """Say whether the next claim starts over."""
        return monotonic() >= self.rewind_at

    def rewind(self) -> None:
        """Make the next claim start over."""
        self.rewind_at = monotonic()

    def advance(self, position: tuple[datetime, int] | None, *, began_at: float) -> None:
        """Note where a claim that began at `began_at` ended; None: it found nothing."""
        if began_at >= self.rewind_at:
            pause = max(REWIND_INTERVAL, (monotonic() - began_at) / REWIND_SHARE)
            self.rewind_at = monotonic() + pause
            self.position = position or self.position
        elif position is not None:
            self.position = position


async def claim(
    db: Connection,
    lane_id: int,
    cursor: Cursor,
    *,
    limit: int,
    worker: str,
    slots_ahead: timedelta = SLOTS_AHEAD,
    now: datetime | None = None,
) -> Lease | float | None:
    """Return a lease, or the seconds until it is worth asking again, or None if nothing waits.

    Commits with the caller's transaction; nothing may be started before that.
    """
    began_at = monotonic()
    due_at, item_id = cursor.start()
    rows = await db.fetch(CLAIM, lane_id, due_at, item_id, limit, worker, slots_ahead, now)
    if not rows or rows[0]["token"] is None:
        cursor.advance(None, began_at=began_at)
        return rows[0]["wait_seconds"] if rows else None
    items = [
        Claimed(
            id=ItemId(found),
            due_at=due_at,
            attempt=attempt,
            forgiven=forgiven,
            key=key,
            order_key=order_key,
            not_after=not_after,
            payload=text,
            start_in=start_in or 0.0,
        )
        for (
            *_,
            start_in,
            found,
            due_at,
            attempt,
            forgiven,
            key,
            order_key,
            not_after,
            text,
        ) in rows
    ]
    first = rows[0]
    position = (items[-1].due_at, items[-1].id)
    if len(items) < limit:
        position = min(position, (first["claimed_at"] - COMMIT_TIME, 0))
    cursor.advance(position, began_at=began_at)
    return Lease(
        token=first["token"],
        claimed_at=first["claimed_at"],
        items=items,
        age=first["age_seconds"] or 0.0,
        more_in=first["wait_seconds"],
    )
