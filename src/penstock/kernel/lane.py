"""A lane's policy: its fields, and how it is created, changed and read. Changes are audited.

Nothing is cached: a change applies to every worker from its commit on.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from operator import attrgetter
from typing import Annotated, Any, Literal

import asyncpg

from penstock.base.errors import InvalidInput, PenstockError
from penstock.kernel.audit import audit
from penstock.kernel.backoff import Backoff
from penstock.kernel.claim import SLOTS_AHEAD
from penstock.kernel.errors import LaneIsOwned, LaneNotEmpty, UnknownLane
from penstock.kernel.limit_key import KeyLimits
from penstock.kernel.policy import FieldRule, policy_fields, policy_table
from penstock.postgres.pool import Connection, Queries, Row
from penstock.postgres.statement import statement

CREATE_LANE = statement(__package__, "create_lane.sql")
LIST_LANES = statement(__package__, "list_lanes.sql")
OWN_LANE = statement(__package__, "own_lane.sql")
SET_LANE = statement(__package__, "set_lane.sql")

# How the guard of a field ends that a variable of the environment fixes.
FIXED_ENDING = " sets it"

Ordering = Literal["none", "per_key"]
OnDeadHead = Literal["block", "park", "skip"]
OnLost = Literal["retry", "hold"]
ErrorDetail = Literal["class", "message"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One lane and its policy: the one definition of the policy's fields.

    `owner` is the domain that the lane belongs to, None for a lane of a user; `guards` is what
    others may not do with it.

    A new field is an entry here, its column with default and CHECK in a migration, and its line
    in functions/set_lane.sql. Tests compare the three.
    """

    lane_id: int
    name: str
    enabled: Annotated[
        bool, FieldRule("Whether items are claimed; `lane pause` and `lane resume` set it.")
    ] = True
    batch_size: Annotated[int, FieldRule("Most items in one claim.", low=1, high=10_000)] = 500
    dispatch_interval: Annotated[
        timedelta,
        FieldRule(
            "Time between two claims that found something, over all workers.",
            low=timedelta(0),
            high=timedelta(days=1),
        ),
    ] = timedelta(0)
    rate: Annotated[
        float | None,
        FieldRule(
            "Items per second over all workers; none means no limit.", low=0.001, high=1_000_000
        ),
    ] = None
    burst: Annotated[
        int, FieldRule("Items that may leave at once after a quiet time.", low=1, high=1_000_000)
    ] = 1
    jitter_window: Annotated[
        timedelta,
        FieldRule(
            "Each start is delayed by a random part of this.",
            low=timedelta(0),
            high=timedelta(hours=1),
        ),
    ] = timedelta(0)
    pre_start_buffer: Annotated[
        timedelta,
        FieldRule(
            "How long before they are due items are claimed; they do not start earlier. "
            "Not used in a lane with a rate. A worker holds at most its concurrency and a batch: "
            "while it holds as many that are not due, others that are due wait.",
            low=timedelta(0),
            high=timedelta(hours=1),
        ),
    ] = timedelta(0)
    max_attempts: Annotated[
        int,
        FieldRule(
            "Tries that count, the first one included.", low=1, high=1_000, setting="max_attempts"
        ),
    ] = 5
    lease: Annotated[
        timedelta,
        FieldRule(
            "How long a worker may be silent before its items are given back.",
            low=timedelta(seconds=1),
            high=timedelta(days=1),
        ),
    ] = timedelta(seconds=30)
    concurrency: Annotated[
        int, FieldRule("Handlers that run at once in each worker process.", low=1, high=10_000)
    ] = 100
    concurrency_total: Annotated[
        int | None,
        FieldRule(
            "Items that all workers together hold at once; none means no limit.",
            low=1,
            high=1_000_000,
        ),
    ] = None
    key_limits: Annotated[
        KeyLimits | None,
        FieldRule(
            "Limits for each value of a [limit key](../howto/limit-per-key.md): `rate`, starts per "
            "second, and `concurrency`, handlers at once.",
            range='JSON such as `{"tenant": {"rate": 20, "concurrency": 5}}`, or none',
        ),
    ] = None
    backoff: Backoff = field(default_factory=Backoff)
    ordering: Annotated[
        Ordering,
        FieldRule(
            "Whether items with the same order key wait for each other. "
            "Changes only while the lane has no unfinished items."
        ),
    ] = "none"
    on_dead_head: Annotated[
        OnDeadHead,
        FieldRule(
            "What a [dead head](../howto/order-per-key.md#what-a-dead-head-does) "
            "of an order key does."
        ),
    ] = "block"
    on_lost: Annotated[
        OnLost,
        FieldRule(
            "What becomes of an item whose worker died: tried again, or "
            "[held](../howto/hold-and-reconcile.md) because it may have been executed."
        ),
    ] = "retry"
    error_detail: Annotated[
        ErrorDetail,
        FieldRule(
            "What an attempt records of an "
            "[exception](../howto/retries-and-backoff.md#exceptions): its class and place, or the "
            "first line of its message too."
        ),
    ] = "class"
    retention: Annotated[
        timedelta,
        FieldRule(
            "How long history and bodies are kept at least after the work has ended.",
            low=timedelta(days=1),
            high=timedelta(days=36_000),  # PostgreSQL compares a year as 360 days.
            range="1 day to 100 years",
        ),
    ] = timedelta(days=30)
    payload_bytes_max: Annotated[
        int,
        FieldRule(
            "Largest payload, as PostgreSQL writes it.",
            low=2,
            high=64 * 1024 * 1024,
            setting="payload_bytes_max",
        ),
    ] = 256 * 1024
    slot_pool: Annotated[
        str | None,
        FieldRule(
            "Items become due in [slots](../howto/slots.md#a-lane-with-a-slot-pool) of this pool, "
            "at or after the instant they ask for; cancelling one gives its slot back.",
            range="a slot pool's name, or none",
            length_max=128,
        ),
    ] = None
    owner: str | None = None
    guards: Mapping[str, str] = field(default_factory=dict[str, str])
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDifference:
    """A field that a handler declares with another value than its lane has; the lane's counts."""

    lane: str
    field: str
    declared: Any
    stored: Any


FIELDS = policy_fields(Lane)
NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")  # As the table's CHECK.
RESERVED_PREFIX = "penstock."  # As the table's CHECK: for lanes of built-in domains.
NO_SLOTS = "none, as the slots are not installed in this database"
NAME_RULE = (
    "must be 1 to 63 of a-z, 0-9, dot, dash and underscore, beginning with a letter or digit"
)
RESERVED_RULE = f"must not begin with {RESERVED_PREFIX!r}, which is reserved for built-in domains"


async def create_lane(
    db: Connection,
    name: str,
    *,
    who: str,
    owner: str | None = None,
    guards: Mapping[str, str] | None = None,
    **policy: Any,
) -> Lane:
    """Return the lane, created with `policy` if it is missing.

    The policy of an existing lane is not changed. Its owner and guards become those of the domain
    `owner`; raises LaneIsOwned if it belongs to another one.
    """
    if not NAME.fullmatch(name):
        raise InvalidInput("name", NAME_RULE)
    async with db.transaction():
        try:
            is_new = await db.fetchval(CREATE_LANE, name, owner, json.dumps(guards or {}))
        except asyncpg.CheckViolationError as refused:
            raise InvalidInput("name", RESERVED_RULE) from refused
        if is_new:
            await audit(db, who, "lane.created", subject=name)
            if policy:
                return await set_lane(db, name, who=who, owner=owner, **policy)
        lane = await read_lane(db, name)
        if is_new or owner is None:
            return lane
        return await _own(db, lane, who=who, owner=owner, guards=guards or {})


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


async def set_lane(
    db: Connection, name: str, *, who: str, owner: str | None = None, **changes: Any
) -> Lane:
    """Change a lane's policy for all workers from their next cycle on; raises InvalidInput.

    A domain passes its name as `owner` to change what it guards against others, who get
    LaneIsOwned.
    """
    given = {field: _to_json(field, value) for field, value in changes.items()}
    try:
        async with db.transaction():
            changing = db.fetchrow(SET_LANE, name, json.dumps(given), SLOTS_AHEAD, who, owner)
            row = await _run(name, changing)
    except UnknownLane as unknown:
        raise UnknownLane(name, tuple(lane.name for lane in await list_lanes(db))) from unknown
    return to_lane(row)


async def pause_lane(db: Connection, name: str, *, who: str) -> Lane:
    """Stop claims: once this returns, no worker can claim from the lane. Items stay as they are."""
    return await set_lane(db, name, who=who, enabled=False)


async def resume_lane(db: Connection, name: str, *, who: str) -> Lane:
    """Allow claims from the lane again."""
    return await set_lane(db, name, who=who, enabled=True)


def to_lane(row: Row) -> Lane:
    """Build a lane from a row of the lane table."""
    values = {name: row[name] for name in ("lane_id", "name", "version")}
    backoff: dict[str, Any] = {}
    for each in FIELDS.values():
        holder = values if len(each.path) == 1 else backoff
        holder[each.path[-1]] = each.from_column(row[each.name])
    guards = json.loads(row["guards"])
    return Lane(backoff=Backoff(**backoff), owner=row["owner"], guards=guards, **values)


def policy_of(lane: Lane) -> dict[str, Any]:
    """Return a lane's policy under the names that `set_lane` takes."""
    return {name: attrgetter(".".join(each.path))(lane) for name, each in FIELDS.items()}


def differences(lane: Lane, declared: Mapping[str, Any]) -> list[PolicyDifference]:
    """Return where a lane differs from what a handler declares; raises InvalidInput."""
    stored = policy_of(lane)
    return [
        PolicyDifference(lane=lane.name, field=name, declared=value, stored=stored[name])
        for name, value in declared.items()
        if _to_json(name, value) != _to_json(name, stored[name])
    ]


def lane_policy_table() -> str:
    """Return the policy's fields as the Markdown table of the reference."""
    return policy_table(FIELDS)


async def _own(
    db: Connection, lane: Lane, *, who: str, owner: str, guards: Mapping[str, str]
) -> Lane:
    """Bring the owner and the guards of an existing lane up to what its domain declares.

    Guards of fields that the environment of another process fixes stay: it may be running.
    """
    if lane.owner not in (None, owner):
        raise LaneIsOwned(
            lane.name, lane.owner, "another owner", "choose another name for your lane"
        )
    fixed = {verb: why for verb, why in lane.guards.items() if why.endswith(FIXED_ENDING)}
    guards = {**guards, **{verb: why for verb, why in fixed.items() if not _fixes(guards, verb)}}
    if (lane.owner, lane.guards) == (owner, guards):
        return lane
    await db.execute(OWN_LANE, lane.name, owner, json.dumps(guards))
    before = {"owner": lane.owner, "guards": lane.guards}
    after = {"owner": owner, "guards": guards}
    await audit(db, who, "lane.changed", subject=lane.name, before=before, after=after)
    return replace(lane, owner=owner, guards=guards)


def _fixes(guards: Mapping[str, str], verb: str) -> bool:
    return guards.get(verb, "").endswith(FIXED_ENDING)


def _to_json(field: str, value: object) -> object:
    if field not in FIELDS:
        raise InvalidInput(field, "is not part of a lane's policy")
    return FIELDS[field].to_json(value)


async def _run(name: str, query: Any) -> Any:
    """Await a change of a policy; turn a refusal by the database into one that names the field."""
    try:
        return await query
    except asyncpg.CheckViolationError as refused:
        # A constraint is named after its column, such as batch_size_is_sane.
        constraint = str(getattr(refused, "constraint_name", ""))
        field, _, _ = constraint.partition("_is_")
        allowed = NO_SLOTS if constraint == "slot_pool_is_absent" else FIELDS[field].range_text()
        raise InvalidInput(field, f"must be {allowed}") from refused
    except asyncpg.ForeignKeyViolationError as refused:
        raise InvalidInput("slot_pool", "must be a slot pool that exists, or none") from refused
    except (asyncpg.DataError, asyncpg.NotNullViolationError) as refused:
        raise InvalidInput("policy", str(refused).splitlines()[0]) from refused
    except asyncpg.PostgresError as refused:
        error = _refusal(name, refused)
        if error is None:
            raise
        raise error from refused


def _refusal(name: str, refused: Any) -> PenstockError | None:
    """Return the error for a refusal by the stored function itself, or None."""
    match refused.sqlstate:
        case "PS404":
            return UnknownLane(name)
        case "PS403":
            return LaneIsOwned(**json.loads(refused.detail))
        case "PS409":
            return LaneNotEmpty(**json.loads(refused.detail))
        case _:
            return None
