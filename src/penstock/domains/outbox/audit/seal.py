"""Seal the archive: append hashes of its new rows to a chain, apart from sending.

One session seals at a time, and each seal is a transaction, so a crash at any point loses nothing.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from penstock.postgres.pool import Pool, database_away
from penstock.postgres.statement import statement

SEAL_OUTBOX = statement(__package__, "seal_outbox.sql")

# 200 KB of ids and hashes in one seal; sealing that many rows takes about 50 ms.
ROWS_MAX = 4_000
SEAL_EVERY = timedelta(seconds=2)  # A row can be changed unseen for this long, and its transaction.


@dataclass(frozen=True, slots=True)
class Sealer:
    """The service that seals rows as they come."""

    pool: Pool

    async def run(self, stop: asyncio.Event) -> None:
        """Seal until `stop` is set. Raises DatabaseAway if the database is unavailable."""
        while not stop.is_set():
            with database_away():
                sealed = await seal(self.pool)
            if sealed < ROWS_MAX:
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), SEAL_EVERY.total_seconds())


async def seal(pool: Pool, *, rows_max: int = ROWS_MAX) -> int:
    """Seal up to `rows_max` rows and return how many; 0 also while another session seals.

    Rows of transactions that are open, or began after one that is open, wait.
    """
    return int(await pool.fetchval(SEAL_OUTBOX, rows_max) or 0)
