"""A lane's policy: a row, read every cycle. Making, changing and reading it; changes are audited.

Nothing here is cached: a change holds from the commit on, for every worker.
"""

import json
import re
from dataclasses import dataclass
from datetime import timedelta
from math import isfinite
from typing import Any, Literal

import asyncpg

from penstock.base.errors import InvalidInput, LaneNotEmpty, UnknownLane
from penstock.kernel.audit import audit
from penstock.kernel.backoff import Backoff
from penstock.kernel.claim import SLOTS_AHEAD
from penstock.postgres.pool import Connection, Queries, Row
from penstock.postgres.statement import statement

CREATE_LANE = statement(__package__, "create_lane.sql")
LIST_LANES = statement(__package__, "list_lanes.sql")
LOCK_LANE = statement(__package__, "lock_lane.sql")
SET_LANE = statement(__package__, "set_lane.sql")
HAS_UNFINISHED = statement(__package__, "has_unfinished.sql")
FORGET_KEYS = statement(__package__, "forget_keys.sql")

Ordering = Literal["none", "per_key"]
OnDeadHead = Literal["block", "park", "skip"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One lane and its policy. `rate` is items per second over all workers; None means no limit.

    With a `slot_pool`, items are due in slots of that pool, at or after the instant they ask for.
    `concurrency` is for each worker process. History is kept at least for `retention`.
    """

    lane_id: int
    name: str
    enabled: bool
    batch_size: int
    dispatch_interval: timedelta
    rate: float | None
    burst: int
    jitter_window: timedelta
    pre_start_buffer: timedelta
    max_attempts: int
    lease: timedelta
    concurrency: int
    backoff: Backoff
    ordering: Ordering
    on_dead_head: OnDeadHead
    retention: timedelta
    payload_bytes_max: int
    slot_pool: str | None
    version: int


NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")  # As the CHECK of the table.
COUNT_MAX = 2**31  # Beyond every CHECK, and what an integer column cannot hold.
DURATION_MAX = timedelta(days=365_000)  # Beyond every CHECK, within what an interval can hold.
DURATIONS = frozenset(
    {
        "dispatch_interval",
        "jitter_window",
        "pre_start_buffer",
        "lease",
        "backoff_base",
        "backoff_cap",
        "retention",
    }
)
COUNTS = frozenset(
    {
        "batch_size",
        "burst",
        "max_attempts",
        "concurrency",
        "backoff_first_exponent",
        "payload_bytes_max",
    }
)
NUMBERS = frozenset({"rate", "backoff_multiplier", "backoff_jitter"})
WORDS = frozenset({"ordering", "on_dead_head", "slot_pool"})
OPTIONAL = frozenset({"rate", "slot_pool"})  # They may be None.
POLICY_FIELDS = DURATIONS | COUNTS | NUMBERS | WORDS | {"enabled"}


async def create_lane(db: Connection, name: str, *, who: str, **policy: Any) -> Lane:
    """Return the lane, made with `policy` if it was not there; an existing one is not changed."""
    if not NAME.fullmatch(name):
        raise InvalidInput("name", f"must be {_RULES['name_is_a_slug']}")
    async with db.transaction():
        if await _run(db.fetchval(CREATE_LANE, name)):
            await audit(db, who, "lane.created", subject=name)
            if policy:
                return await set_lane(db, name, who=who, **policy)
    return await read_lane(db, name)


async def read_lane(db: Queries, name: str) -> Lane:
    """Return one lane or raise UnknownLane."""
    lanes = await list_lanes(db)
    found = next((lane for lane in lanes if lane.name == name), None)
    if found is None:
        raise UnknownLane(name, tuple(lane.name for lane in lanes))
    return found


async def list_lanes(db: Queries) -> list[Lane]:
    """Return all lanes, by name."""
    return [to_lane(row) for row in await db.fetch(LIST_LANES)]


async def set_lane(db: Connection, name: str, *, who: str, **changes: Any) -> Lane:
    """Change a lane's policy for all workers from their next cycle on; raises InvalidInput."""
    given = {field: _checked(field, value) for field, value in changes.items()}
    async with db.transaction():
        before = await db.fetchrow(LOCK_LANE, name)
        if before is None:
            raise UnknownLane(name, tuple(lane.name for lane in await list_lanes(db)))
        if "ordering" in given and given["ordering"] != before["ordering"]:
            await _empty_for_reordering(db, name, before["lane_id"])
        after = await _run(db.fetchrow(SET_LANE, name, json.dumps(given), SLOTS_AHEAD))
        assert after is not None, "the row is locked"
        await audit(
            db,
            who,
            "lane.changed",
            subject=name,
            before={field: _plain(before[field]) for field in given},
            after={field: _plain(after[field]) for field in given},
        )
    return to_lane(after)


async def pause_lane(db: Connection, name: str, *, who: str) -> Lane:
    """Stop claims: once this returns, no worker can claim from the lane. Items stay as they are."""
    return await set_lane(db, name, who=who, enabled=False)


async def resume_lane(db: Connection, name: str, *, who: str) -> Lane:
    """Let the lane's items be claimed again."""
    return await set_lane(db, name, who=who, enabled=True)


def to_lane(row: Row) -> Lane:
    """Build a lane from a row of the lane table."""
    return Lane(
        lane_id=row["lane_id"],
        name=row["name"],
        enabled=row["enabled"],
        batch_size=row["batch_size"],
        dispatch_interval=row["dispatch_interval"],
        rate=row["rate"],
        burst=row["burst"],
        jitter_window=row["jitter_window"],
        pre_start_buffer=row["pre_start_buffer"],
        max_attempts=row["max_attempts"],
        lease=row["lease"],
        concurrency=row["concurrency"],
        backoff=Backoff(
            base=row["backoff_base"],
            multiplier=row["backoff_multiplier"],
            cap=row["backoff_cap"],
            jitter=row["backoff_jitter"],
            first_exponent=row["backoff_first_exponent"],
        ),
        ordering=row["ordering"],
        on_dead_head=row["on_dead_head"],
        retention=row["retention"],
        payload_bytes_max=row["payload_bytes_max"],
        slot_pool=row["slot_pool"],
        version=row["version"],
    )


async def _empty_for_reordering(db: Connection, name: str, lane_id: int) -> None:
    """Lines are drawn when an item is accepted, so items of two orderings cannot stand together."""
    if await db.fetchval(HAS_UNFINISHED, lane_id):
        raise LaneNotEmpty(name, "ordering")
    await db.execute(FORGET_KEYS, lane_id)


def _checked(field: str, value: object) -> object:
    """Return the value as JSON takes it, or raise InvalidInput; ranges are the database's part."""
    if field not in POLICY_FIELDS:
        raise InvalidInput(field, "is not part of a lane's policy")
    if field in DURATIONS:
        if not isinstance(value, timedelta):
            raise InvalidInput(field, "must be a duration")
        if abs(value) > DURATION_MAX:
            raise InvalidInput(field, "is longer than any policy allows")
        return f"{value.total_seconds():.6f} seconds"
    if not _is_of_its_type(field, value):
        raise InvalidInput(field, f"must be {_TYPES.get(field, 'a number')}, not {value!r:.50}")
    return value


def _is_of_its_type(field: str, value: object) -> bool:
    """Say whether the column can take the value; the database would not say which one cannot."""
    if value is None:
        return field in OPTIONAL
    if field in COUNTS:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < COUNT_MAX
    if field in NUMBERS:
        return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    return isinstance(value, str if field in WORDS else bool)


async def _run(query: Any) -> Any:
    """Await a write of a lane; turn the database's refusal into an error that names the field."""
    try:
        return await query
    except asyncpg.CheckViolationError as refused:
        constraint = str(getattr(refused, "constraint_name", ""))
        field, _, rule = constraint.partition("_is_")
        raise InvalidInput(field, f"must be {_RULES.get(constraint, rule)}") from refused
    except asyncpg.ForeignKeyViolationError as refused:
        raise InvalidInput("slot_pool", "must be a slot pool that exists, or none") from refused
    except (asyncpg.DataError, asyncpg.NotNullViolationError) as refused:
        raise InvalidInput("policy", str(refused).splitlines()[0]) from refused


_TYPES = (
    {"enabled": "true or false", "ordering": "none or per_key"}
    | {"on_dead_head": "block, park or skip", "slot_pool": "the name of a slot pool, or none"}
    | dict.fromkeys(COUNTS, "a whole number")
)

# What the named constraints of the lane table ask for, in words.
_RULES = {
    "name_is_a_slug": "1 to 63 of a-z, 0-9, dot, dash and underscore, not starting with a mark",
    "batch_size_is_sane": "from 1 to 10,000",
    "dispatch_interval_is_sane": "from 0 to a day",
    "rate_is_sane": "from 0.001 to 1,000,000 per second, or none",
    "burst_is_sane": "from 1 to 1,000,000",
    "jitter_window_is_sane": "from 0 to an hour",
    "pre_start_buffer_is_sane": "from 0 to an hour",
    "max_attempts_is_sane": "from 1 to 1,000",
    "lease_is_sane": "from a second to a day",
    "concurrency_is_sane": "from 1 to 10,000",
    "backoff_base_is_sane": "above 0 and at most the cap",
    "backoff_cap_is_sane": "at most 30 days",
    "backoff_multiplier_is_sane": "from 1 to 100",
    "backoff_jitter_is_a_fraction": "from 0 to 1",
    "backoff_first_exponent_is_sane": "from 0 to 10",
    "ordering_is_known": "none or per_key",
    "on_dead_head_is_known": "block, park or skip",
    "retention_is_sane": "from a day to 100 years",
    "payload_bytes_max_is_sane": "from 2 bytes to 64 MiB",
}


def _plain(value: object) -> object:
    return value.total_seconds() if isinstance(value, timedelta) else value
