"""How tests wait: for a condition that is polled, with a timeout."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from penstock.postgres.pool import Pool

POLL_SECONDS = 0.05  # Between two checks of a condition.


async def until(is_true: Callable[[], Awaitable[bool]], *, within: float) -> None:
    """Return once the condition holds; raises TimeoutError after `within` seconds."""
    async with asyncio.timeout(within):
        while not await is_true():
            await pause(POLL_SECONDS)


async def pause(seconds: float) -> None:
    """Wait this long; other tasks run meanwhile."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()


async def is_blocked(db: Pool) -> bool:
    """Return whether a session of this database waits for a lock."""
    return await db.fetchval(
        """
        SELECT count(*) > 0 FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'
        """
    )
