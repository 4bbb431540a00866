"""History and bodies live in one partition a day; what is old enough is dropped with its day."""

from datetime import UTC, datetime, timedelta

from penstock.postgres.pool import Connection
from penstock.postgres.statement import statement

OPEN_DAYS = statement(__package__, "open_days.sql")
LIST_DAYS = statement(__package__, "list_days.sql")
DROP_DAY = statement(__package__, "drop_day.sql")

DAYS_AHEAD = 2  # A sweeper that is away for a day leaves no gap.


async def open_days(db: Connection, *, now: datetime | None = None) -> None:
    """Make the partitions of today and the next days, and move item ids on to today's."""
    today = (now or datetime.now(UTC)).astimezone(UTC).date()
    await db.execute(OPEN_DAYS, today, DAYS_AHEAD)


async def retain(db: Connection, *, now: datetime | None = None) -> list[str]:
    """Drop the days whose history nobody has to keep any longer; return their names.

    Items of such a day that are unfinished, held or dead, or that have ended within the retention,
    are moved out first, so nothing that matters goes with it.
    """
    at = now or datetime.now(UTC)
    oldest = (at.astimezone(UTC) - timedelta(days=1)).date()
    days = [row["day"] for row in await db.fetch(LIST_DAYS, oldest)]
    return [day.isoformat() for day in days if await db.fetchval(DROP_DAY, day, at)]
