"""Claim a batch of due items under one lease: one statement, one row written per batch."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

import msgspec

from penstock.base.clock import suspended_seconds
from penstock.kernel.item import Item, ItemId, LastAttempt
from penstock.kernel.pace import LATE_MIN
from penstock.postgres.clock import DatabaseClock
from penstock.postgres.pool import Connection
from penstock.postgres.statement import statement

CLAIM = statement(__package__, "claim.sql")

# How far ahead a rate-limited lane hands out slots: longer than a claim takes, so that items wait
# for their slot and not for the claim; short, so that a crash delays few items.
SLOTS_AHEAD = timedelta(milliseconds=200)

REWIND_INTERVAL = 0.05  # Seconds. An item committed late, or put back, waits at most this long.
REWIND_SHARE = 0.05  # Rewinding may take this share of the time, however long the scan takes.
# Most producers commit within this time after their `now`. An item that is not committed yet must
# not end up behind the cursor; with a backlog it would wait anyway.
COMMIT_TIME = timedelta(milliseconds=100)
_limit_keys = msgspec.json.Decoder(dict[str, str])
BEGINNING = (datetime(1, 1, 1, tzinfo=UTC), 0)


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """One item of a lease, before its payload is decoded.

    `start_in` is in seconds from the claim: the item's slot, or its due instant without a rate.
    A struct because it is faster to create, see Item.
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
    limit_keys: dict[str, str] | None = None
    last: LastAttempt | None = None
    preloaded: Item[Any] | None = None  # As the handler gets it, after the kind's `preload`.
    preload_failure: Exception | None = None  # What that raised for this item alone.


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The items of one claim. The token fences every later write about them."""

    token: int
    claimed_at: datetime
    items: list[Claimed]
    began_at: float = 0.0  # `claimed_at` on the monotonic clock of this process, within `error`.
    error: float = 0.0  # Seconds.
    suspended: float = 0.0  # How long the machine had been suspended when the claim was sent.
    more_in: float | None = 0.0  # Seconds until the next claim can find items; None: no item waits.
    marks_starts: bool = False  # Whether an item may start only after its start mark is committed.


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRange:
    """Which slots a claim may assign: up to `ahead` from now, and none that is over after `delay`.

    The delay is that from the claim to the start of its first items. `waits_for_cycle`: none before
    the lane's dispatch interval is over, unless the caller keeps that interval by itself.
    """

    ahead: timedelta = SLOTS_AHEAD
    delay: timedelta = LATE_MIN
    waits_for_cycle: bool = True


USUAL_SLOTS = SlotRange()


@dataclass(slots=True)
class Cursor:
    """Where a worker's last claim ended: a hint that skips dead index entries.

    Items inserted behind it are found by a rewind. While a snapshot is held open, a rewind scans
    all entries deleted since then; so the longer a rewind takes, the less often it happens. The
    worker's poll sees what has been behind the cursor for a second.
    """

    position: tuple[datetime, int] = BEGINNING
    rewind_at: float = field(default_factory=monotonic)

    def start(self) -> tuple[datetime, int]:
        """Return where the next claim starts."""
        return BEGINNING if self.is_rewinding() else self.position

    def is_rewinding(self) -> bool:
        """Return whether the next claim starts at the beginning."""
        return monotonic() >= self.rewind_at

    def rewind(self) -> None:
        """Make the next claim start at the beginning."""
        self.rewind_at = monotonic()

    def advance(
        self, position: tuple[datetime, int] | None, *, began_at: float, scan_seconds: float
    ) -> None:
        """Record where a claim that began at `began_at` ended; None: it found no item.

        `scan_seconds` is the server's own time; a wait for the lane's lock is no reason to rewind
        less often.
        """
        if began_at >= self.rewind_at:
            self.rewind_at = monotonic() + max(REWIND_INTERVAL, scan_seconds / REWIND_SHARE)
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
    slots: SlotRange = USUAL_SLOTS,
    clock: DatabaseClock | None = None,
    now: datetime | None = None,
) -> Lease | float | None:
    """Return a lease, or the seconds until the next item can be claimed, or None if no item waits.

    Commits with the caller's transaction; no item may be started before that. `clock` is updated
    from the answer.
    """
    clock = clock or DatabaseClock()
    # Before the statement: a suspension while it is under way makes the lease older.
    suspended = suspended_seconds()
    began_at = monotonic()
    due_at, item_id = cursor.start()
    rows = await db.fetch(
        CLAIM,
        lane_id,
        due_at,
        item_id,
        limit,
        worker,
        slots.ahead,
        now,
        LATE_MIN,
        slots.delay,
        slots.waits_for_cycle,
    )
    if not rows:
        return None  # The lane is gone.
    first = rows[0]
    clock.observe(
        sent_at=began_at,
        received_at=first["received_at"],
        answered_at=first["answered_at"],
        read_at=monotonic(),
    )
    scan_seconds: float = first["scan_seconds"]
    if first["token"] is None:
        cursor.advance(None, began_at=began_at, scan_seconds=scan_seconds)
        return first["wait_seconds"]
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
            limit_keys=None if limit_keys is None else _limit_keys.decode(limit_keys),
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
            limit_keys,
        ) in rows
    ]
    position = (items[-1].due_at, items[-1].id)
    if len(items) < limit:
        position = min(position, (first["claimed_at"] - COMMIT_TIME, 0))
    cursor.advance(position, began_at=began_at, scan_seconds=scan_seconds)
    return Lease(
        token=first["token"],
        claimed_at=first["claimed_at"],
        items=items,
        began_at=clock.to_monotonic(first["claimed_at"]),
        error=clock.error,
        suspended=suspended,
        more_in=first["wait_seconds"],
        marks_starts=first["marks_starts"],
    )
