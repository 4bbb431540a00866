"""Payments that do not go on: dispatched and not executed, or persisted and not enqueued.

A terminated workflow leaves either, and no lane shows them. The status has no index: a service
looks through the last days, a page at a time, and notes them in a small table, which is counted.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from penstock.postgres.pool import Pool, database_away
from penstock.postgres.statement import statement

NOTE_STUCK = statement(__package__, "note_stuck.sql")
NOTE_UNFINISHED = statement(__package__, "note_unfinished.sql")
FORGET_MOVED = statement(__package__, "forget_moved.sql")

INTERVAL = timedelta(seconds=5)
PAGE_MAX = 5_000  # Takes 25 ms; a million payments are looked at in 17 minutes.
STUCK_MAX = 10_000  # Rows of the table: an outage of Temporal must not fill it.
# A workflow takes seconds, also after its jitter; later a person has to look at it.
GRACE = timedelta(minutes=10)
WINDOW = timedelta(days=2)  # What is found stays noted until it moves, however old it is.


@dataclass(slots=True, kw_only=True)
class StuckPayments:
    """The service that notes stuck payments; any number of processes may run it."""

    pool: Pool
    _last_dispatch: int | None = field(default=None, init=False)
    _last_payment: tuple[datetime, str] | None = field(default=None, init=False)

    async def run(self, stop: asyncio.Event) -> None:
        """Look at a page per interval until `stop` is set. Raises DatabaseAway; supervise it."""
        while not stop.is_set():
            with database_away():
                await self.look_once()
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), INTERVAL.total_seconds())

    async def look_once(self, *, now: datetime | None = None) -> None:
        """Look at the next pages, from the newest on; after the oldest, start again."""
        await self.pool.execute(FORGET_MOVED)
        await self._note_stuck(now)
        await self._note_unfinished(now)

    async def _note_stuck(self, now: datetime | None) -> None:
        self._last_dispatch = await self.pool.fetchval(
            NOTE_STUCK, self._last_dispatch, GRACE, WINDOW, PAGE_MAX, STUCK_MAX, now
        )

    async def _note_unfinished(self, now: datetime | None) -> None:
        before_at, before_id = self._last_payment or (None, None)
        last = await self.pool.fetchrow(
            NOTE_UNFINISHED, before_at, before_id, GRACE, WINDOW, PAGE_MAX, STUCK_MAX, now
        )
        self._last_payment = None if last is None else (last["scheduled_at"], last["payment_id"])
