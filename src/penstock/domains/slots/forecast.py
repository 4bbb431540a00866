"""Forecast the slots of many requests from the runs of taken cells, without booking."""

from dataclasses import dataclass
from datetime import datetime

from penstock.base.errors import InvalidInput
from penstock.calendar.instant import check_instant
from penstock.domains.slots.config import extend
from penstock.domains.slots.errors import PoolExhausted, UnknownPool
from penstock.postgres.pool import Connection
from penstock.postgres.statement import statement

FORECAST = statement(__package__, "forecast.sql")

COUNT_MAX = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The first and last slot that `count` requests for one instant would get now."""

    first_at: datetime
    last_at: datetime
    windows: int


async def forecast(
    db: Connection, pool: str, *, count: int, from_at: datetime, now: datetime | None = None
) -> Forecast:
    """Return the first and the last slot, and how many windows they use.

    Raises UnknownPool, InvalidInput, or PoolExhausted if there are fewer free slots before 2200.
    """
    if not 1 <= count <= COUNT_MAX:
        raise InvalidInput("count", f"must be from 1 to {COUNT_MAX:,}")
    check_instant(from_at, "from")
    while True:
        row = await db.fetchrow(FORECAST, pool, count, from_at, now)
        if row is None:
            raise UnknownPool(pool)
        if row["last_at"] is not None:
            return Forecast(
                first_at=row["first_at"], last_at=row["last_at"], windows=row["windows"]
            )
        if not await extend(db, pool):
            raise PoolExhausted(pool)
