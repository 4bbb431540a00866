"""Health over REST: whether the process is alive and ready. Needs no key, and shows no details."""

import asyncio
from datetime import timedelta

from penstock.api import wire
from penstock.base.errors import PenstockError
from penstock.contract.http import NoParameters, Reply
from penstock.kernel.lane import list_lanes
from penstock.postgres.errors import DatabaseFull
from penstock.postgres.pool import Pool, database_away
from penstock.postgres.statement import statement
from penstock.web.call import WebCall

PROBE_TIMEOUT = timedelta(seconds=2)  # Callers give a probe up that takes longer.
IS_READ_ONLY = statement(__package__, "is_read_only.sql")


async def show_live(_call: WebCall[NoParameters, None]) -> wire.Live:
    """Answer while the process runs."""
    return wire.Live(live=True)


async def show(call: WebCall[NoParameters, None]) -> Reply[wire.Health]:
    """Show whether requests can be served, which needs a database that reads and writes."""
    database = await _database(call.context.penstock.pool)
    # A full disk can be read, and only a write shows that it is full.
    if database == "up" and call.context.disk.is_full():
        database = "full"
    is_up = database == "up"
    return Reply(wire.Health(live=True, ready=is_up, database=database), 200 if is_up else 503)


async def _database(pool: Pool) -> wire.DatabaseStatus:
    try:
        with database_away():
            async with asyncio.timeout(PROBE_TIMEOUT.total_seconds()):
                await list_lanes(pool)
                is_read_only = await pool.fetchval(IS_READ_ONLY)
    except DatabaseFull:
        return "full"
    except PenstockError:
        return "away"
    return "read-only" if is_read_only else "up"
