"""Reassign a pool's future slots after its rule has changed; every move is recorded."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import asyncpg

from penstock.calendar.instant import check_instant
from penstock.domains.slots.config import extend
from penstock.domains.slots.errors import PoolExhausted, UnknownPool
from penstock.kernel.audit import audit
from penstock.postgres.pool import Connection
from penstock.postgres.statement import statement

REFLOW = statement(__package__, "reflow.sql")

REFLOW_TIMEOUT = timedelta(minutes=30)  # A million slots take half a minute, under the pool's lock.


@dataclass(frozen=True, slots=True, kw_only=True)
class Reflow:
    """The result of a reflow, or, without a `reflow_id`, of a dry run.

    Slots before `frozen_until` stay; `considered` counts the slots after it.
    """

    reflow_id: int | None
    frozen_until: datetime
    considered: int
    moved: int
    last_before: datetime | None
    last_after: datetime | None
    longest_delay: timedelta | None


async def reflow(
    db: Connection,
    pool: str,
    *,
    freeze_until: datetime,
    who: str,
    is_dry_run: bool = True,
    now: datetime | None = None,
) -> Reflow:
    """Move each future slot to the first place at or after its requested time, in slot order.

    All moves are made, or none. Raises UnknownPool, InvalidInput, or PoolExhausted if a slot has no
    place before 2200.
    """
    check_instant(freeze_until, "freezeUntil")
    while True:
        try:
            async with db.transaction():
                return await _reflow(
                    db, pool, freeze_until=freeze_until, who=who, is_dry_run=is_dry_run, now=now
                )
        except asyncpg.PostgresError as raised:
            match getattr(raised, "sqlstate", None):
                case "PS404":
                    raise UnknownPool(pool) from raised
                case "PS503":
                    if not await extend(db, pool):
                        raise PoolExhausted(pool) from raised
                case _:
                    raise


async def _reflow(
    db: Connection,
    pool: str,
    *,
    freeze_until: datetime,
    who: str,
    is_dry_run: bool,
    now: datetime | None,
) -> Reflow:
    seconds = REFLOW_TIMEOUT.total_seconds()
    row = await db.fetchrow(REFLOW, pool, freeze_until, is_dry_run, who, now, timeout=seconds)
    assert row is not None, "the function returns one row"
    fields = {name: value for name, value in row.items() if name != "pool_id"}
    done = Reflow(**fields)
    if done.reflow_id is not None:
        after = {"reflow_id": done.reflow_id, "moved": done.moved}
        await audit(db, who, "slots.reflowed", subject=pool, after=after)
    return done
