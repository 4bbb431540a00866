"""Worker rows: which workers run, their lanes, and when each was last seen.

They only inform people. No claim and no lease depends on them, so a late one does no harm.
"""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib.metadata import version

from penstock.postgres.pool import Queries
from penstock.postgres.statement import statement

REPORT_WORKER = statement(__package__, "report_worker.sql")
REMOVE_WORKER = statement(__package__, "remove_worker.sql")
LIST_WORKERS = statement(__package__, "list_workers.sql")
FORGET_WORKERS = statement(__package__, "forget_workers.sql")

HEARTBEAT_INTERVAL = timedelta(seconds=5)  # The wait of a person who looks, for one small update.
ALIVE_FOR = 4 * HEARTBEAT_INTERVAL  # Three heartbeats may be late or fail.
FORGOTTEN_AFTER = timedelta(days=1)  # The crash of a night is still visible in the morning.


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A worker as it last reported itself; `is_alive` if that was in the last 20 seconds."""

    name: str
    host: str
    pid: int
    version: str
    lanes: Sequence[str]
    started_at: datetime
    seen_at: datetime
    is_alive: bool


async def report_worker(
    db: Queries, name: str, lanes: Sequence[str], *, now: datetime | None = None
) -> None:
    """Note that the worker `name` runs `lanes` in this process."""
    await db.execute(
        REPORT_WORKER, name, socket.gethostname(), os.getpid(), version("penstock"), lanes, now
    )


async def remove_worker(db: Queries, name: str) -> None:
    """Delete the row of a worker that has stopped."""
    await db.execute(REMOVE_WORKER, name)


async def list_workers(
    db: Queries, *, lane: str | None = None, now: datetime | None = None
) -> list[WorkerView]:
    """Return the workers of a lane, or all, those that were not seen lately included."""
    rows = await db.fetch(LIST_WORKERS, lane, ALIVE_FOR, now)
    return [WorkerView(**dict(row.items())) for row in rows]


async def forget_workers(db: Queries, *, now: datetime | None = None) -> None:
    """Delete the rows of workers that were not seen for a day."""
    await db.execute(FORGET_WORKERS, now, FORGOTTEN_AFTER)
