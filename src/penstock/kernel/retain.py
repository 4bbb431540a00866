"""Daily partitions of history and bodies: create them in advance, and apply each lane's retention.

A day is dropped when few of its items must be kept; otherwise the items of lanes whose retention is
over are deleted from it in batches. Only the database's clock counts.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

import asyncpg

from penstock.postgres.pool import Connection
from penstock.postgres.statement import statement

OPEN_DAYS = statement(__package__, "open_days.sql")
LIST_DAYS = statement(__package__, "list_days.sql")
DROP_DAY = statement(__package__, "drop_day.sql")
DELAY_DAYS = statement(__package__, "delay_days.sql")
TRIM_DAY = statement(__package__, "trim_day.sql")
TRIM_RETAINED = statement(__package__, "trim_retained.sql")

DAYS_AHEAD = 2  # No gap if no sweeper runs for a day.
# Behind a backup that takes hours, each try holds up all other statements for 2 s.
DELAY = timedelta(minutes=10)
TRIM_ITEMS_MAX = 2_000  # One short transaction: 23 ms on a busy machine if all are deleted.


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """The days that were dropped. `is_delayed`: a long reader blocks others; they come later."""

    dropped: list[str]
    is_delayed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed:
    """A batch of a day that is trimmed: the items it examined, and whether it was the last one."""

    day: str
    examined: int
    is_finished: bool


async def open_days(db: Connection, *, now: datetime | None = None) -> None:
    """Create the partitions of today and the next days; advance item ids to today's block."""
    await db.execute(OPEN_DAYS, now, DAYS_AHEAD)


async def retain(db: Connection, *, now: datetime | None = None) -> Retained:
    """Drop each day of which few items must be kept; start to trim the others. Commits each day.

    Items that are unfinished, held or dead, or that ended within their lane's retention, are kept
    with their attempts. A day is looked at once a day.
    """
    dropped = list[str]()
    for row in await db.fetch(LIST_DAYS, now):
        try:
            if await db.fetchval(DROP_DAY, row["day"], now):
                dropped.append(row["day"].isoformat())
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
            await db.execute(DELAY_DAYS, now, DELAY)
            return Retained(dropped=dropped, is_delayed=True)
    return Retained(dropped=dropped, is_delayed=False)


async def trim_day(db: Connection, *, now: datetime | None = None) -> Trimmed | None:
    """Delete the expired ones of the next items of a day that is trimmed; None if there is none."""
    row = await db.fetchrow(TRIM_DAY, TRIM_ITEMS_MAX, now)
    if row is None:
        return None
    return Trimmed(
        day=row["day"].isoformat(), examined=row["examined"], is_finished=row["is_finished"]
    )


async def trim_retained(db: Connection, *, now: datetime | None = None) -> int:
    """Delete items that retention kept once and need not keep now; return how many it examined."""
    return int(await db.fetchval(TRIM_RETAINED, TRIM_ITEMS_MAX, now) or 0)
