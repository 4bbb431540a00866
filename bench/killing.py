"""Several workers on one lane: all at once when everybody is ready, and with kills if wanted."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping
from typing import Final, Protocol

from bench.dispatch import WHO, DispatchFailed, Scene, working
from penstock.domains.webhooks.domain import LANE
from penstock.kernel.lane import pause_lane, resume_lane

WORKERS: Final = 4
LOOK_SECONDS: Final = 0.1
# Among those of $1: a killed one holds its leases until they are over. Names are host:pid:random.
BUSIEST: Final = """
SELECT split_part(worker, ':', 2)::integer AS pid
FROM penstock.lease
WHERE split_part(worker, ':', 2)::integer = ANY ($1)
GROUP BY pid
ORDER BY sum(cardinality(item_ids)) DESC
LIMIT 1
"""
# Why something has not arrived.
WHEREABOUTS: Final = """
SELECT (SELECT count(*) FROM penstock.ready) || ' ready, '
    || (SELECT count(*) FROM penstock.parked) || ' parked, '
    || (SELECT count(*) FROM penstock.lease, unnest(item_ids)) || ' leased, '
    || (SELECT count(*) FROM penstock.dead) || ' dead'
"""


class Arrivals(Protocol):
    """Where it arrives."""

    async def count(self) -> int: ...


async def deliver_together(
    scene: Scene,
    receiver: Arrivals,
    *,
    events: int,
    seconds_max: float,
    lane: str = LANE,
    kills_max: int = 0,
    kill_every: float = 2.0,
    variables: Mapping[str, str] | None = None,
) -> int:
    """Let the workers deliver until all events have arrived; return how many were killed.

    Each `kill_every` seconds the one that holds most is killed (-9) and replaced, as often as
    `kills_max` says.
    """
    kills = 0
    async with scene.pool.acquire() as db, contextlib.AsyncExitStack() as on:

        async def start() -> int:
            worker = working(scene, lane=lane, variables=variables)
            return (await on.enter_async_context(worker)).pid

        await pause_lane(db, lane, who=WHO)  # Else the first would be far ahead of the last.
        alive = {await start() for _ in range(WORKERS)}
        await resume_lane(db, lane, who=WHO)
        began = time.monotonic()
        while (arrived := await receiver.count()) < events:
            scene.bench.report.progress(arrived)
            elapsed = time.monotonic() - began
            if elapsed > seconds_max:
                rest = await db.fetchval(WHEREABOUTS)
                raise DispatchFailed(f"{arrived:,} of {events:,} events in {elapsed:.0f} s; {rest}")
            is_time = kills < kills_max and elapsed > (kills + 1) * kill_every
            if is_time and (pid := await db.fetchval(BUSIEST, list(alive))):
                os.kill(pid, signal.SIGKILL)
                kills += 1
                alive ^= {pid, await start()}
            await asyncio.sleep(LOOK_SECONDS)
    return kills
