"""Delete what no kept mail needs: attachments, and counts of limits that are over.

Mails and results are not deleted here: they leave with their items, by the retention of their lane.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.base.log import Logger
from penstock.postgres.pool import Pool, Queries, database_away
from penstock.postgres.statement import statement

REMOVE_UNUSED_BLOBS = statement(__package__, "remove_unused_blobs.sql")
REMOVE_IDLE_QUOTAS = statement(__package__, "remove_idle_quotas.sql")

RETAIN_INTERVAL = timedelta(hours=1)
BLOBS_MAX = 100  # In one statement: each may be 10 MB, and is searched in the mails of every day.
# An attachment outlives its last mail by this at most. One that is in use is looked up as often.
BLOB_UNUSED_DAYS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Retainer:
    """The service that deletes; any number of processes may run it."""

    pool: Pool
    log: Logger

    async def run(self, stop: asyncio.Event) -> None:
        """Delete until `stop` is set. Raises DatabaseAway; supervise it."""
        while not stop.is_set():
            with database_away():
                removed = await remove_unused(self.pool)
            if removed:
                self.log.info("mail_blobs.removed", blob_count=removed)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), RETAIN_INTERVAL.total_seconds())


async def remove_unused(db: Queries, *, now: datetime | None = None) -> int:
    """Delete unused attachments and old quotas; return how many attachments. Commits each batch."""
    await db.execute(REMOVE_IDLE_QUOTAS, now)
    removed = 0
    while True:
        row = await db.fetchrow(REMOVE_UNUSED_BLOBS, BLOBS_MAX, BLOB_UNUSED_DAYS, now)
        assert row is not None, "a count has one row"
        removed += row["removed"]
        if row["examined"] < BLOBS_MAX:
            return removed
