"""A pool's rule, in versions: capacity and size of its windows, spacing, horizon, calendar."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import asyncpg
import msgspec
from msgspec import UNSET, UnsetType

from penstock.base.errors import InvalidInput
from penstock.calendar.calendar import Calendar
from penstock.calendar.check import check
from penstock.calendar.instant import END_AT
from penstock.calendar.periods import Period, open_periods
from penstock.domains.slots.errors import UnknownPool
from penstock.kernel.audit import audit
from penstock.postgres.pool import Connection, Queries, Row
from penstock.postgres.statement import statement

READ_CONFIG = statement(__package__, "read_config.sql")
LIST_CONFIGS = statement(__package__, "list_configs.sql")
LOCK_POOL = statement(__package__, "lock_pool.sql")
SET_CONFIG = statement(__package__, "set_config.sql")
CALENDAR_END = statement(__package__, "calendar_end.sql")
ADD_STRETCHES = statement(__package__, "add_stretches.sql")

DEFAULT = "default"  # The pool that migrations create, and of requests that name none.
NAME_LENGTH_MAX = 128
MAX_PER_WINDOW = 1_000_000
WINDOW_MIN = timedelta(milliseconds=1)
WINDOW_MAX = timedelta(days=1)
HORIZON = timedelta(days=366)
HORIZON_MIN = timedelta(days=1)
HORIZON_MAX = timedelta(days=3660)
MICROSECOND = timedelta(microseconds=1)
# Ten years of opening periods are a few thousand rows; more are added when they are used up.
KNOWN_AHEAD = timedelta(days=3653)
# Recounts all slots: 1.5 s for a million of them, 4 s if each becomes a run of its own.
CHANGE_TIMEOUT = timedelta(minutes=10)

Spacing = Literal["even", "random"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One version of a pool's rule, in force from `effective_at` until the next version."""

    config_id: int
    pool: str
    version: int
    max_per_window: int
    window_size: timedelta
    spacing: Spacing
    horizon: timedelta
    calendar: Calendar | None
    is_strict: bool
    effective_at: datetime
    created_at: datetime
    created_by: str
    is_active: bool


async def read_config(db: Queries, pool: str) -> Config:
    """Return the active version; raises UnknownPool."""
    row = await db.fetchrow(READ_CONFIG, pool)
    if row is None:
        raise UnknownPool(pool)
    return _config(row)


async def list_configs(db: Queries, pool: str | None = None) -> list[Config]:
    """Return the active version of every pool, or all versions of one, newest first."""
    configs = [_config(row) for row in await db.fetch(LIST_CONFIGS, pool)]
    if pool is not None and not configs:
        raise UnknownPool(pool)
    return configs


async def set_config(  # noqa: PLR0913  One argument per field of a config.
    db: Connection,
    pool: str,
    *,
    who: str,
    max_per_window: int | None = None,
    window_size: timedelta | None = None,
    spacing: Spacing | None = None,
    horizon: timedelta | None = None,
    calendar: Calendar | UnsetType | None = UNSET,
    is_strict: bool | None = None,
    now: datetime | None = None,
) -> Config:
    """Create a new version, and the pool if it does not exist; omitted fields stay as they were.

    It is in force on all nodes when this returns. A new window size takes effect at the next
    boundary of the new windows, all else at once. A new pool needs capacity and size. Raises
    InvalidInput.
    """
    _check_name(pool)
    async with db.transaction():
        await db.execute(LOCK_POOL, pool, timeout=CHANGE_TIMEOUT.total_seconds())
        row = await db.fetchrow(READ_CONFIG, pool)
        before = None if row is None else _config(row)
        if max_per_window is None:
            max_per_window = _given(before, "maxPerWindow").max_per_window
        if window_size is None:
            window_size = _given(before, "windowSize").window_size
        _check(max_per_window, window_size)
        if isinstance(calendar, UnsetType):
            calendar = before.calendar if before else None
        if horizon is None:
            horizon = before.horizon if before else HORIZON
        _check_horizon(horizon)
        at = now or datetime.now(UTC)
        periods = None if calendar is None else _periods(calendar, at)
        arguments = (
            max_per_window,
            window_size,
            spacing or (before.spacing if before else "even"),
            horizon,
            None if calendar is None else msgspec.json.encode(calendar).decode(),
            None if calendar is None else calendar.cut_off_policy,
            *_columns(periods),
        )
        try:
            await db.fetchval(
                SET_CONFIG,
                pool,
                *arguments,
                who,
                now,
                is_strict,
                timeout=CHANGE_TIMEOUT.total_seconds(),
            )
        except asyncpg.PostgresError as refused:
            if getattr(refused, "sqlstate", None) == "PS400":
                raise InvalidInput("calendar", "leaves no place for a slot") from refused
            raise
        after = await read_config(db, pool)
        await audit(
            db,
            who,
            "slots.configured",
            subject=pool,
            before=None if before is None else _audited(before),
            after=_audited(after),
        )
    return after


async def extend(db: Connection, pool: str) -> bool:
    """Add opening periods to a pool; False if it has no calendar, or has them up to 2200."""
    async with db.transaction():
        await db.execute(LOCK_POOL, pool)
        row = await db.fetchrow(CALENDAR_END, pool)
        if row is None or row["known_until"] >= END_AT:
            return False
        calendar = msgspec.json.decode(row["calendar"], type=Calendar)
        known_until: datetime = row["known_until"]
        periods = open_periods(calendar, known_until, min(known_until + KNOWN_AHEAD, END_AT))
        if not periods:
            return False
        await db.execute(ADD_STRETCHES, row["config_id"], *_columns(periods))
    return True


def _check_name(pool: str) -> None:
    if not 1 <= len(pool) <= NAME_LENGTH_MAX or not pool.isprintable():
        raise InvalidInput("configName", f"must have 1 to {NAME_LENGTH_MAX} printable characters")


def _given(before: Config | None, field: str) -> Config:
    """Return the previous version, from which an omitted field is taken."""
    if before is None:
        raise InvalidInput(field, "is required for a new config")
    return before


def _check(max_per_window: int, window_size: timedelta) -> None:
    """Raise InvalidInput with the names of the REST API; the database has the same rules."""
    if not WINDOW_MIN <= window_size <= WINDOW_MAX:
        raise InvalidInput("windowSize", "must be from a millisecond to a day")
    if not 1 <= max_per_window <= MAX_PER_WINDOW:
        raise InvalidInput("maxPerWindow", f"must be from 1 to {MAX_PER_WINDOW:,}")
    if max_per_window > window_size // MICROSECOND:
        raise InvalidInput("maxPerWindow", "must not be more than one in a microsecond")


def _check_horizon(horizon: timedelta) -> None:
    if not HORIZON_MIN <= horizon <= HORIZON_MAX:
        raise InvalidInput("horizon", "must be from a day to 3,660 days")


def _periods(calendar: Calendar, at: datetime) -> list[Period]:
    check(calendar, now=at)
    # From a day before, because a period that is open now began earlier.
    return open_periods(calendar, at - timedelta(days=1), min(at + KNOWN_AHEAD, END_AT))


def _columns(periods: list[Period] | None) -> tuple[list[Any] | None, ...]:
    """Return periods as arguments of the database functions: starts, ends, days, cut-offs."""
    if periods is None:
        return (None, None, None, None)
    return (
        [period.starts_at for period in periods],
        [period.ends_at for period in periods],
        [period.day for period in periods],
        [period.cut_off_at for period in periods],
    )


def _config(row: Row) -> Config:
    calendar = row["calendar"]
    return Config(
        config_id=row["config_id"],
        pool=row["pool"],
        version=row["version"],
        max_per_window=row["max_per_window"],
        window_size=row["window_size"],
        spacing=row["spacing"],
        horizon=row["horizon"],
        calendar=None if calendar is None else msgspec.json.decode(calendar, type=Calendar),
        is_strict=row["is_strict"],
        effective_at=row["effective_at"],
        created_at=row["created_at"],
        created_by=row["created_by"],
        is_active=row["is_active"],
    )


def _audited(config: Config) -> dict[str, Any]:
    plain = msgspec.to_builtins(config)
    return {
        name: plain[name]
        for name in (
            "version",
            "max_per_window",
            "window_size",
            "spacing",
            "horizon",
            "calendar",
            "is_strict",
        )
    }
