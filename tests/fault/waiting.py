"""How fault tests wait: for a condition, looked at now and then, and never for ever."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from penstock.postgres.pool import Pool

LOOK = 0.05  # Seconds between two looks at a condition.


async def until(is_true: Callable[[], Awaitable[bool]], *, within: float) -> None:
    """Return once the condition holds; raises TimeoutError after `within` seconds."""
    async with asyncio.timeout(within):
        while not await is_true():
            await moment(LOOK)


async def moment(seconds: float) -> None:
    """Let others work."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()


async def is_blocked(db: Pool) -> bool:
    """Tell whether a session of this database waits for another one's lock; the server says so."""
    return await db.fetchval(
        """
        SELECT count(*) > 0 FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'
        """
    )
