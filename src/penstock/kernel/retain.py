"""Daily partitions of history and bodies: create them in advance, drop the expired ones."""

from datetime import UTC, datetime, timedelta

from penstock.postgres.pool import Connection
from penstock.postgres.statement import statement

OPEN_DAYS = statement(__package__, "open_days.sql")
LIST_DAYS = statement(__package__, "list_days.sql")
DROP_DAY = statement(__package__, "drop_day.sql")

DAYS_AHEAD = 2  # No gap if no sweeper runs for a day.


async def open_days(db: Connection, *, now: datetime | None = None) -> None:
    """Create the partitions of today and the next days; advance item ids to today's block."""
    today = (now or datetime.now(UTC)).astimezone(UTC).date()
    await db.execute(OPEN_DAYS, today, DAYS_AHEAD)


async def retain(db: Connection, *, now: datetime | None = None) -> list[str]:
    """Drop the days whose retention is over; return their names.

    Items of such a day that are unfinished, held or dead, or that have ended within the retention,
    are moved to another partition first.
    """
    at = now or datetime.now(UTC)
    oldest = (at.astimezone(UTC) - timedelta(days=1)).date()
    days = [row["day"] for row in await db.fetch(LIST_DAYS, oldest)]
    return [day.isoformat() for day in days if await db.fetchval(DROP_DAY, day, at)]
