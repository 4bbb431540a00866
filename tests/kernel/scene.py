"""Helpers of the kernel tests: enqueue, claim, settle and inspect items."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.base.log import get_logger
from penstock.base.meter import Meter
from penstock.compose.limit_keys import LimitKeyGate
from penstock.kernel.claim import Claimed, Cursor, Lease, claim
from penstock.kernel.enqueue import enqueue
from penstock.kernel.inspect import read_attempts, read_item
from penstock.kernel.item import Ending, ItemId, NewItem, Outcome, Retry
from penstock.kernel.kind import AnyKind, Kind
from penstock.kernel.lane import Lane
from penstock.kernel.limit_key import StartGate
from penstock.kernel.settle import Ended, settle
from penstock.kernel.worker import Worker
from penstock.limits.local import LocalGate
from penstock.postgres.pool import Connection, Pool, Queries

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)  # The initial instant of these tests.
MICROSECOND = timedelta(microseconds=1)
MILLISECOND = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)

PATIENCE = 20.0  # Seconds that a test waits for a signal: a busy machine needs a few.


async def put(
    db: Connection,
    lane: Lane,
    payload: object = None,
    *,
    at: datetime = NOON,
    key: str | None = None,
    due_at: datetime | None = None,
    order_key: str | None = None,
    not_after: datetime | None = None,
    limit_keys: Mapping[str, str] | None = None,
) -> ItemId:
    """Enqueue one item at noon and return its id."""
    item = NewItem(
        payload=payload, key=key, due_at=due_at, order_key=order_key, not_after=not_after,
        limit_keys=limit_keys,
    )  # fmt: skip
    return (await enqueue(db, lane.name, item, at=at)).id


async def try_claim(
    db: Connection,
    lane: Lane,
    *,
    now: datetime | None = NOON,
    limit: int = 1_000,
    cursor: Cursor | None = None,
    worker: str = "test",
) -> Lease | float | None:
    """Claim from the beginning of the lane, or from the cursor."""
    return await claim(db, lane.lane_id, cursor or Cursor(), limit=limit, worker=worker, now=now)


def claimed(item_id: int, *, start_in: float = 0.0) -> Claimed:
    """Return an item as a claim would, without a database."""
    return Claimed(
        id=ItemId(item_id), due_at=NOON, attempt=0, forgiven=0, key=None, order_key=None,
        not_after=None, payload="null", start_in=start_in,
    )  # fmt: skip


async def take(
    db: Connection, lane: Lane, *, now: datetime | None = NOON, limit: int = 1_000
) -> Lease:
    """Claim something that is known to be there."""
    found = await try_claim(db, lane, now=now, limit=limit)
    assert isinstance(found, Lease), f"nothing to claim: {found}"
    return found


async def end(  # noqa: PLR0917  It reads as a sentence.
    db: Connection, lane: Lane, lease: Lease, ending: Ending, *, now: datetime | None = NOON
) -> bool:
    """Settle all items of a lease with one ending; return whether the lease was still held."""
    ended = [Ended(claimed, ending, 5) for claimed in lease.items]
    async with db.transaction():
        settled = await settle(db, lane, lease, ended=ended, closes=True, now=now)
    return settled is not None


async def attempt_once(
    db: Connection, lane: Lane, ending: Ending, *, now: datetime = NOON
) -> list[ItemId]:
    """Claim what is due and end it; return its ids."""
    lease = await take(db, lane, now=now)
    assert await end(db, lane, lease, ending, now=now)
    return ids(lease)


def ids(found: Lease | float | None) -> list[ItemId]:
    """Return what a claim took, in its order."""
    return [claimed.id for claimed in found.items] if isinstance(found, Lease) else []


async def state_of(db: Queries, item_id: ItemId) -> str:
    """Return where an item is."""
    found = await read_item(db, item_id)
    assert found is not None
    return found.state


async def reason_of(db: Queries, item_id: ItemId) -> str | None:
    """Return why an item is where it is."""
    found = await read_item(db, item_id)
    assert found is not None
    return found.reason


async def due_of(db: Queries, item_id: ItemId) -> datetime:
    """Return when an item is due next."""
    found = await read_item(db, item_id)
    assert found is not None
    return found.due_at


async def outcomes_of(db: Queries, item_id: ItemId) -> list[str]:
    """Return the outcomes of an item's attempts in their order."""
    return [each.outcome for each in await read_attempts(db, item_id)]


def kind_of(
    lane: Lane,
    handle: Any,
    *,
    payload_type: Any = Any,
    takes_batch: bool = False,
    timeout: timedelta = MINUTE,
    when_unknown: Callable[[str], Outcome] = Retry,
) -> AnyKind:
    """Wrap a handler for a worker."""
    return Kind(
        lane=lane.name,
        payload_type=payload_type,
        handle=None if takes_batch else handle,
        handle_many=handle if takes_batch else None,
        timeout=timeout,
        when_unknown=when_unknown,
    )


def worker_of(
    dsn: str, pool: Pool, *kinds: AnyKind, gate: StartGate | None = None, **options: Any
) -> Worker:
    """Return a worker that has not been started, with a gate of its own unless one is given."""
    return Worker(
        dsn=dsn,
        pool=pool,
        kinds=kinds,
        gate=gate or own_gate(),
        log=get_logger(),
        meter=Meter(),
        **options,
    )


def own_gate() -> LimitKeyGate:
    """Return a gate of limit keys that no other worker shares."""
    return LimitKeyGate(LocalGate())
