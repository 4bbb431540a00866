"""Whether the process lives, and whether it can do its work. Needs no key and tells no reason."""

import asyncio
from datetime import timedelta

from penstock.api import wire
from penstock.api.call import Call
from penstock.base.errors import PenstockError
from penstock.contract.http import NoParameters, Reply
from penstock.kernel.lane import list_lanes
from penstock.postgres.pool import Pool, database_away

PROBE_TIMEOUT = timedelta(seconds=2)  # A probe that waits longer is given up by who sent it.


async def show_live(_call: Call[NoParameters, None]) -> wire.Live:
    """Say that the process answers."""
    return wire.Live(live=True)


async def show(call: Call[NoParameters, None]) -> Reply[wire.Health]:
    """Say whether requests can be served, which takes the database and our tables in it."""
    is_up = await _is_up(call.site.penstock.pool)
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
