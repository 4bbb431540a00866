"""Bulk replay of dead items: a durable job that any sweeper continues."""

from dataclasses import dataclass
from datetime import datetime

from penstock.kernel.audit import audit
from penstock.kernel.errors import UnknownReplay
from penstock.kernel.guard import check_lane
from penstock.kernel.lane import read_lane
from penstock.postgres.pool import Connection, Queries, Row
from penstock.postgres.statement import statement

COUNT_DEAD = statement(__package__, "count_dead.sql")
START_REPLAY = statement(__package__, "start_replay.sql")
STEP_REPLAY = statement(__package__, "step_replay.sql")
LIST_REPLAYS = statement(__package__, "list_replays.sql")

STEP_ITEMS = 1_000  # One short transaction; the progress is committed with it.


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadReplay:
    """A replay job. `counted` is how many dead items matched when it was created."""

    replay_id: int
    lane: str
    reason: str | None
    counted: int
    replayed: int
    created_at: datetime
    created_by: str
    finished_at: datetime | None


async def count_dead(
    db: Queries, lane: str, *, reason: str | None = None, now: datetime | None = None
) -> int:
    """Return how many dead items a replay would retry."""
    found = await read_lane(db, lane)
    return int(await db.fetchval(COUNT_DEAD, found.lane_id, reason, now))


async def start_replay(
    db: Connection,
    lane: str,
    *,
    who: str,
    reason: str | None = None,
    owner: str | None = None,
    now: datetime | None = None,
) -> DeadReplay:
    """Create a replay of all dead items of a lane, or those with one reason; returns at once.

    Items that die later are not part of it. Raises LaneIsOwned if the lane belongs to a domain
    other than `owner` that guards it.
    """
    found = await read_lane(db, lane)
    check_lane(found, "replay", owner=owner)
    async with db.transaction():
        row = await db.fetchrow(START_REPLAY, found.lane_id, reason, who, now)
        assert row is not None, "an INSERT returns its row"
        replay = _to_replay(row)
        after = {"replay_id": replay.replay_id, "reason": reason, "counted": replay.counted}
        await audit(db, who, "dead.replayed", subject=lane, after=after)
    return replay


async def list_replays(db: Queries) -> list[DeadReplay]:
    """Return the replays of the last days, the newest first."""
    return [_to_replay(row) for row in await db.fetch(LIST_REPLAYS, None)]


async def read_replay(db: Queries, replay_id: int) -> DeadReplay:
    """Return one replay or raise UnknownReplay."""
    row = await db.fetchrow(LIST_REPLAYS, replay_id)
    if row is None:
        raise UnknownReplay(replay_id)
    return _to_replay(row)


async def continue_replays(db: Connection, *, now: datetime | None = None) -> int:
    """Take one step of the oldest unfinished replay; return how many items it replayed."""
    return int(await db.fetchval(STEP_REPLAY, STEP_ITEMS, now) or 0)


def _to_replay(row: Row) -> DeadReplay:
    return DeadReplay(
        replay_id=row["replay_id"],
        lane=row["lane"],
        reason=row["reason"],
        counted=row["counted"],
        replayed=row["replayed"],
        created_at=row["created_at"],
        created_by=row["created_by"],
        finished_at=row["finished_at"],
    )
