"""Health over REST: whether the process is alive and ready. Needs no key and shows no reason."""

import asyncio
from datetime import timedelta

from penstock.api import wire
from penstock.base.errors import PenstockError
from penstock.contract.http import NoParameters, Reply
from penstock.kernel.lane import list_lanes
from penstock.postgres.pool import Pool, database_away
from penstock.web.call import Call

PROBE_TIMEOUT = timedelta(seconds=2)  # Callers give a probe up that takes longer.


async def show_live(_call: Call[NoParameters, None]) -> wire.Live:
    """Answer while the process runs."""
    return wire.Live(live=True)


async def show(call: Call[NoParameters, None]) -> Reply[wire.Health]:
    """Show whether requests can be served, which needs the database and its tables."""
    is_up = await _is_up(call.context.penstock.pool)
    health = wire.Health(live=True, ready=is_up, database="up" if is_up else "away")
    return Reply(health, 200 if is_up else 503)


async def _is_up(pool: Pool) -> bool:
    try:
        with database_away():
            async with asyncio.timeout(PROBE_TIMEOUT.total_seconds()):
                await list_lanes(pool)
    except PenstockError:
        return False
    return True
