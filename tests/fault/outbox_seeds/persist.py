"""How a run goes on while PostgreSQL restarts."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from penstock.postgres.errors import DatabaseAway
from penstock.postgres.pool import database_away
from tests.fault.waiting import pause

T = TypeVar("T")

AGAIN_SECONDS = 0.25


async def persist(work: Callable[[], Awaitable[T]]) -> T:
    """Await `work()`, again while the database restarts."""
    while True:
        with suppress(DatabaseAway), database_away():
            return await work()
        await pause(AGAIN_SECONDS)
