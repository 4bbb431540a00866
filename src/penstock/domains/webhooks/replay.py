"""Replays: a durable job sends old events to one subscription, once more or for the first time.

The job is an item of a lane of its own. Each step commits how far it has come, so that a crash or a
pause costs nothing and repeats nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Literal

from msgspec import Struct

from penstock.base.errors import InvalidInput
from penstock.contract.http import ACQUIRE_TIMEOUT
from penstock.domains.webhooks.errors import ReplayConflict
from penstock.domains.webhooks.match import check_pattern
from penstock.domains.webhooks.subscription import read_subscription
from penstock.kernel.audit import audit
from penstock.kernel.enqueue import check_instant, enqueue
from penstock.kernel.errors import UnknownReplay
from penstock.kernel.item import Done, Item, NewItem, Outcome, Snooze
from penstock.postgres.pool import Connection, Pool, Queries
from penstock.postgres.statement import statement

START_REPLAY = statement(__package__, "start_replay.sql")
COUNT_REPLAY = statement(__package__, "count_replay.sql")
READ_REPLAY = statement(__package__, "read_replay.sql")
LIST_REPLAYS = statement(__package__, "list_replays.sql")
SET_REPLAY = statement(__package__, "set_replay.sql")
STEP_REPLAY = statement(__package__, "step_replay.sql")

OWNER = "webhooks"  # The domain; its lanes refuse items of others.
LANE = "penstock.webhooks.replay"
STEP_SCANNED_MAX = 10_000  # Events that one step looks at: well under a second.
STEP_WANTED_MAX = 1_000  # Events that one step sends: one short transaction.
TURN = timedelta(seconds=5)  # One attempt steps on for this long; then others have their turn.
COUNT_TIMEOUT = timedelta(seconds=50)  # Just under what a connection allows a statement.

RATE_MIN, RATE_MAX = 0.001, 100_000

Which = Literal["missing", "failed", "delivered", "all"]
ReplayState = Literal["running", "paused", "cancelled", "finished"]
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


class ReplayRef(Struct, frozen=True):
    """A replay item's payload."""

    replay: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewReplay:
    """Which events to send again. `rate` is events per second; None is as fast as it goes."""

    subscription_id: str
    which: Which = "missing"
    event_types: Sequence[str] | None = None
    from_at: datetime = BEGINNING
    until_at: datetime | None = None
    rate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventReplay:
    """A replay and how far it is."""

    id: int
    subscription_id: str
    which: Which
    event_types: Sequence[str] | None
    from_at: datetime
    until_at: datetime
    rate: float | None
    state: ReplayState
    counted: int
    replayed: int
    created_at: datetime
    created_by: str
    finished_at: datetime | None


async def start_replay(db: Connection, new: NewReplay, *, who: str) -> EventReplay:
    """Count what the replay is about, and let it begin; it goes on by itself."""
    async with db.transaction():
        replay_no = await _write(db, new, who=who)
        await _enqueue(db, replay_no)
        await audit(db, who, "replay.started", subject=new.subscription_id)
        return await read_replay(db, replay_no)


async def count_replay(db: Connection, new: NewReplay) -> int:
    """Return how many events a replay would send; nothing is kept."""
    transaction = db.transaction()
    await transaction.start()
    try:
        replay_no = await _write(db, new, who="nobody")
        return (await read_replay(db, replay_no)).counted
    finally:
        await transaction.rollback()


async def read_replay(db: Queries, replay_no: int) -> EventReplay:
    """Return a replay or raise UnknownReplay."""
    row = await db.fetchrow(READ_REPLAY, replay_no)
    if row is None:
        raise UnknownReplay(replay_no)
    return EventReplay(**dict(row.items()))


async def list_replays(
    db: Queries, *, before: int | None = None, limit: int = 100
) -> list[EventReplay]:
    """Return a page of replays, the newest first."""
    return [EventReplay(**dict(row.items())) for row in await db.fetch(LIST_REPLAYS, before, limit)]


async def set_replay(
    db: Connection, replay_no: int, state: Literal["running", "paused", "cancelled"], *, who: str
) -> EventReplay:
    """Pause a replay, let it go on, or end it; a repeat is harmless. Raises ReplayConflict."""
    async with db.transaction():
        found = await read_replay(db, replay_no)
        if found.state == state:
            return found
        if await db.fetchval(SET_REPLAY, replay_no, state) is None:
            raise ReplayConflict(replay_no, found.state)
        if state == "running":
            await _enqueue(db, replay_no)
        await audit(db, who, f"replay.{state}", subject=found.subscription_id)
        return await read_replay(db, replay_no)


@dataclass(frozen=True, slots=True)
class ReplayStep:
    """The handler of the replay lane."""

    pool: Pool

    async def __call__(self, item: Item[ReplayRef]) -> Outcome:
        """Go on for a while; what is left is for the next attempt."""
        until = monotonic() + TURN.total_seconds()
        while monotonic() < until:
            async with self.pool.acquire(timeout=ACQUIRE_TIMEOUT.total_seconds()) as db:
                wait: timedelta | None = await db.fetchval(
                    STEP_REPLAY, item.payload.replay, STEP_SCANNED_MAX, STEP_WANTED_MAX
                )
            if wait is None:
                return Done()
            if wait > timedelta(0):
                return Snooze(wait, "as fast as the rate allows")
        return Snooze(timedelta(0), "more to come")


async def _write(db: Connection, new: NewReplay, *, who: str) -> int:
    for index, pattern in enumerate(new.event_types or ()):
        check_pattern(pattern, f"event_types[{index}]")
    if new.rate is not None and not RATE_MIN <= new.rate <= RATE_MAX:
        raise InvalidInput("rate", f"must be from {RATE_MIN} to {RATE_MAX:,} per second")
    check_instant("from", new.from_at)
    check_instant("until", new.until_at)
    if new.event_types is not None and not new.event_types:
        raise InvalidInput("event_types", "must not be empty; leave it out for all types")
    subscription = await read_subscription(db, new.subscription_id)
    replay_no: int = await db.fetchval(
        START_REPLAY,
        subscription.number,
        None if new.event_types is None else list(new.event_types),
        new.from_at,
        new.until_at,
        new.which,
        new.rate,
        who,
    )
    await db.execute(COUNT_REPLAY, replay_no, timeout=COUNT_TIMEOUT.total_seconds())
    return replay_no


async def _enqueue(db: Connection, replay_no: int) -> None:
    await enqueue(db, LANE, NewItem(payload=ReplayRef(replay_no)), owner=OWNER)
