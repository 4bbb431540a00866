"""The sweeper: expired leases, passed deadlines, vacated order keys, replays, daily partitions,
retention, and rows of workers that are gone.

Any number of sweepers may run; each task locks its rows with SKIP LOCKED.
"""

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta

import asyncpg

from penstock.base.log import Logger
from penstock.base.meter import Meter
from penstock.kernel import metrics
from penstock.kernel.heartbeat import FORGOTTEN_AFTER, forget_workers
from penstock.kernel.promote import bury_heads, promote_vacated
from penstock.kernel.replay import continue_replays
from penstock.kernel.retain import open_days, retain, trim_day, trim_retained
from penstock.postgres.pool import Connection, Pool, Row, database_away
from penstock.postgres.statement import statement

SWEEP_DUE = statement(__package__, "sweep_due.sql")
RESCUE = statement(__package__, "rescue.sql")
EXPIRE = statement(__package__, "expire.sql")

SWEEP_INTERVAL = timedelta(seconds=5)  # An item whose worker died waits for its lease and this.
LEASES_MAX = 20  # 10,000 items at the default batch size: one short transaction.
ITEMS_MAX = 1_000
LONG_READER = "a long transaction reads the history"


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What one sweep did."""

    rescued: int = 0
    expired: int = 0
    keys_promoted: int = 0
    replayed: int = 0
    examined: int = 0  # Items of which retention has decided whether they are kept.

    @property
    def is_idle(self) -> bool:
        """True when there was nothing to do, so that the next sweep may wait."""
        return self == Swept()


async def sweep_forever(pool: Pool, *, meter: Meter, log: Logger) -> None:
    """Sweep until cancelled. Raises DatabaseAway if the database is unavailable; supervise it."""
    while True:
        with database_away():
            swept = await sweep(pool, meter=meter, log=log)
        if swept.is_idle:
            await asyncio.sleep(SWEEP_INTERVAL.total_seconds())


async def sweep(pool: Pool, *, meter: Meter, log: Logger, now: datetime | None = None) -> Swept:
    """Run each task that has something to do, once."""
    async with pool.acquire() as db:
        due = await db.fetchrow(SWEEP_DUE, now, FORGOTTEN_AFTER)
        assert due is not None, "a SELECT without FROM has one row"
        if due["is_new_day"]:
            await _open_days(db, log=log, now=now)
        if due["has_lost_workers"]:
            await forget_workers(db, now=now)
        swept = Swept(
            rescued=await rescue(db, meter=meter, now=now) if due["has_expired_leases"] else 0,
            expired=await expire(db, now=now) if due["has_passed_deadlines"] else 0,
            keys_promoted=(await promote_vacated(db)).keys if due["has_vacated_keys"] else 0,
            replayed=await continue_replays(db, now=now) if due["has_replays"] else 0,
            examined=(await _trim(db, log=log, now=now) if due["has_days_to_trim"] else 0)
            + (await trim_retained(db, now=now) if due["has_retained_items"] else 0),
        )
        # Last, because a large day takes seconds.
        if due["has_days_to_look_at"]:
            await _retain(db, log=log, now=now)
    if swept.rescued:
        log.warning("items.rescued", item_count=swept.rescued)
    if swept.expired:
        log.info("items.expired", item_count=swept.expired)
    return swept


async def _open_days(db: Connection, *, log: Logger, now: datetime | None) -> None:
    """Create daily partitions; if a long reader blocks that, retry at the next sweep."""
    try:
        await open_days(db, now=now)
    except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
        log.warning("day.delayed", reason=LONG_READER)


async def _trim(db: Connection, *, log: Logger, now: datetime | None) -> int:
    trimmed = await trim_day(db, now=now)
    if trimmed is None:
        return 0
    if trimmed.is_finished:
        log.info("history.trimmed", name=trimmed.day)
    return trimmed.examined


async def _retain(db: Connection, *, log: Logger, now: datetime | None) -> None:
    retained = await retain(db, now=now)
    for day in retained.dropped:
        log.info("history.dropped", name=day)
    if retained.is_delayed:
        log.warning("day.delayed", reason=LONG_READER)


async def rescue(db: Connection, *, meter: Meter | None = None, now: datetime | None = None) -> int:
    """Return the items of expired leases to `ready`, or hold them; count and return how many."""
    async with db.transaction():
        rows = await db.fetch(RESCUE, LEASES_MAX, now)
        await _bury(db, rows)
    if meter is not None:
        for row in rows:
            meter.count(metrics.REQUEUED, row["items_lost"], lane=row["lane"])
    return sum(row["items_lost"] for row in rows)


async def expire(db: Connection, *, now: datetime | None = None) -> int:
    """End unclaimed items that are past their deadline; return how many."""
    async with db.transaction():
        rows = await db.fetch(EXPIRE, ITEMS_MAX, now)
        await _bury(db, rows)
    return sum(row["items_expired"] for row in rows)


async def _bury(db: Connection, rows: list[Row]) -> None:
    for row in rows:
        if row["dead_ids"]:
            heads = list(zip(row["dead_ids"], row["dead_keys"], strict=True))
            await bury_heads(db, row["lane_id"], heads)
