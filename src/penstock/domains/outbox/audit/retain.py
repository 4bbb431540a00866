"""Partitions of the archive by month: created ahead, and dropped if the setting limits how many
are kept. Sums of old days are removed. Only the database's clock counts.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta

import asyncpg

from penstock.base.log import Logger
from penstock.postgres.pool import Pool, database_away
from penstock.postgres.statement import statement

OPEN_OUTBOX_MONTHS = statement(__package__, "open_outbox_months.sql")
LIST_OUTBOX_MONTHS = statement(__package__, "list_outbox_months.sql")
DROP_OUTBOX_MONTH = statement(__package__, "drop_outbox_month.sql")
DROP_DAYS = statement(__package__, "drop_days.sql")

MONTHS_AHEAD = 2  # A month in which no worker runs leaves no gap.
DAYS_KEPT = 35  # A month to look at sums. What is tried again later is counted on that day instead.
RETAIN_EVERY = timedelta(hours=1)
LONG_READER = "a long transaction reads the archive"
MUST_STAY = "a row is not sealed, or its instruction is not finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveRetainer:
    """The service that opens months and drops those that ended more than `months_kept` ago.

    It also removes the sums of days that no limit looks at any more.
    """

    pool: Pool
    log: Logger
    months_kept: int | None = None  # None: for ever.

    async def run(self, stop: asyncio.Event) -> None:
        """Look every hour until `stop` is set. Raises DatabaseAway if there is no database."""
        while not stop.is_set():
            with database_away():
                await self.retain()
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), RETAIN_EVERY.total_seconds())

    async def retain(self, *, now: datetime | None = None) -> None:
        """Open the next months, then drop old ones; what a long reader blocks, comes later."""
        await drop_days(self.pool, now=now)
        try:
            await open_months(self.pool, now=now)
            if self.months_kept is not None:
                await self._drop(self.months_kept, now=now)
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
            self.log.warning("archive.delayed", reason=LONG_READER)

    async def _drop(self, months_kept: int, *, now: datetime | None) -> None:
        for month in await list_months(self.pool, months_kept=months_kept, now=now):
            dropped = await drop_month(self.pool, month)
            if dropped is None:
                self.log.warning("archive.kept", name=f"{month:%Y-%m}", reason=MUST_STAY)
            else:
                self.log.info("archive.dropped", name=f"{month:%Y-%m}", row_count=dropped)


async def open_months(pool: Pool, *, now: datetime | None = None) -> list[date]:
    """Create the partitions of this month and the next ones; return those that were missing."""
    rows = await pool.fetch(OPEN_OUTBOX_MONTHS, now, MONTHS_AHEAD)
    return [row["month"] for row in rows]


async def list_months(pool: Pool, *, months_kept: int, now: datetime | None = None) -> list[date]:
    """Return the months that ended at least `months_kept` months ago, the oldest first."""
    rows = await pool.fetch(LIST_OUTBOX_MONTHS, now, months_kept)
    return [row["month"] for row in rows]


async def drop_month(pool: Pool, month: date) -> int | None:
    """Remove a month with all its rows and return how many; None if it has to stay."""
    return await pool.fetchval(DROP_OUTBOX_MONTH, month)


async def drop_days(pool: Pool, *, now: datetime | None = None) -> int:
    """Remove the sums of days that ended more than DAYS_KEPT ago; return how many."""
    return await pool.fetchval(DROP_DAYS, now, DAYS_KEPT)
