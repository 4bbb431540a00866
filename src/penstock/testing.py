"""For tests of applications: run what is due at the instant of a fake clock, without a worker.

The kernel's own claim, execute and settle run on a real database, and nothing waits in real time.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from penstock.app import Penstock
from penstock.base.clock import FakeClock
from penstock.base.log import Logger
from penstock.kernel.claim import Claimed, Cursor, Lease, SlotRange, claim
from penstock.kernel.execute import execute, execute_many, watchdog_of
from penstock.kernel.failures import FailureLog
from penstock.kernel.history import with_history
from penstock.kernel.item import Dead, Ending, ItemId, Outcome, Returned
from penstock.kernel.kind import AnyKind
from penstock.kernel.lane import read_lane
from penstock.kernel.preload import preload
from penstock.kernel.promote import promote_vacated
from penstock.kernel.replay import continue_replays
from penstock.kernel.settle import Ended, settle
from penstock.kernel.sweep import expire, rescue
from penstock.postgres.pool import Connection

__all__ = ["Attempted", "FakeClock", "run_due", "run_to_end"]

ATTEMPTS_MAX = 10_000  # Ends a test whose handler retries for ever.
WORKER = "penstock.testing"
MICROSECOND = timedelta(microseconds=1)  # The resolution of PostgreSQL's clock.


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempted:
    """One attempt that a run has made, and the clock's instant when it was made."""

    item_id: ItemId
    lane: str
    at: datetime
    outcome: Outcome


class _ValidFence:
    """A run settles each batch before anything else happens, so its leases are always valid."""

    async def is_valid(self, token: int, item_id: ItemId) -> bool:  # noqa: ARG002
        return True


VALID = _ValidFence()


@dataclass(slots=True)
class _Round:
    """One claim of every lane: the attempts made, and when more items can be claimed."""

    attempted: list[Attempted] = field(default_factory=list)
    next_at: list[datetime] = field(default_factory=list)


async def run_due(
    app: Penstock, clock: FakeClock, *, attempts_max: int = ATTEMPTS_MAX
) -> list[Attempted]:
    """Run what is due at `clock.now()`, until nothing is; return the attempts in their order.

    The app must be open. Deadlines and expired leases are handled as by the sweeper. What a
    handler retries or snoozes waits: the clock does not move. Raises AssertionError after
    `attempts_max` attempts.
    """
    ran: list[Attempted] = []
    while attempted := (await _run_round(app, clock.now())).attempted:
        ran += attempted
        _check_attempts_max(ran, attempts_max)
    return ran


async def run_to_end(
    app: Penstock,
    clock: FakeClock,
    *,
    until: datetime | None = None,
    attempts_max: int = ATTEMPTS_MAX,
) -> list[Attempted]:
    """Run what is due, advance the clock to the next due instant, and repeat until nothing is left.

    With `until`, the clock stops there. Held and dead items, and those of paused lanes, stay.
    """
    ran: list[Attempted] = []
    while True:
        current = await _run_round(app, clock.now())
        ran += current.attempted
        _check_attempts_max(ran, attempts_max)
        if current.attempted:
            continue
        next_at = min(current.next_at, default=None)
        if next_at is None or (until is not None and next_at > until):
            break
        clock.advance(max(next_at - clock.now(), MICROSECOND))
    if until is not None and until > clock.now():
        clock.advance(until - clock.now())
    return ran


async def _run_round(app: Penstock, now: datetime) -> _Round:
    """Sweep, then claim and run one batch of every lane that has a handler."""
    current = _Round()
    async with app.pool.acquire() as db:
        await rescue(db, now=now)
        await expire(db, now=now)
        await promote_vacated(db)
        await continue_replays(db, now=now)
        for kind in app.kinds.values():
            await _run_batch(db, kind, current, log=app.log, now=now)
    return current


async def _run_batch(
    db: Connection, kind: AnyKind, current: _Round, *, log: Logger, now: datetime
) -> None:
    if kind.may_claim is not None and not await kind.may_claim(db):
        return
    lane = await read_lane(db, kind.lane)
    found = await claim(
        db,
        lane.lane_id,
        Cursor(),
        limit=lane.batch_size,
        worker=WORKER,
        slots=SlotRange(ahead=timedelta(0)),
        now=now,
    )
    if isinstance(found, Lease):
        found = await with_history(db, found)
        if kind.preload is not None:
            found = await preload(db, found, kind, fence=VALID)
        failures = FailureLog(log, kind, lambda: lane.error_detail)
        endings = await _endings(found, kind, failures=failures, now=now)
        ended = [Ended(*each, 0) for each in endings]
        async with db.transaction():
            await settle(
                db, lane, found, ended=ended, closes=True, record_settled=kind.record, now=now
            )
        for claimed, ending in ((each.claimed, each.ending) for each in ended):
            if isinstance(ending, Returned):
                current.next_at.append(now + _to_microsecond(claimed.start_in))
            else:
                current.attempted.append(
                    Attempted(item_id=claimed.id, lane=lane.name, at=now, outcome=ending)
                )
    elif found is not None:
        current.next_at.append(now + _to_microsecond(found))


async def _endings(
    lease: Lease, kind: AnyKind, *, failures: FailureLog, now: datetime
) -> list[tuple[Claimed, Ending]]:
    """Run the items that may start now; return those that were claimed ahead of their start."""
    endings = {claimed.id: _refusal(claimed, now=now) for claimed in lease.items}
    startable = [claimed for claimed in lease.items if endings[claimed.id] is None]
    guard = watchdog_of(kind, failures.log).guard()
    if kind.handle_many is not None:
        outcomes = await execute_many(
            startable, kind, lease.token, guard=guard, fence=VALID, failures=failures
        )
    else:
        outcomes = [
            await execute(each, kind, lease.token, guard=guard, fence=VALID, failures=failures)
            for each in startable
        ]
    made = {claimed.id: outcome for claimed, outcome in zip(startable, outcomes, strict=True)}
    return [(claimed, endings[claimed.id] or made[claimed.id]) for claimed in lease.items]


def _refusal(claimed: Claimed, *, now: datetime) -> Ending | None:
    if claimed.start_in > 0:
        return Returned()
    if claimed.not_after is not None and now > claimed.not_after:
        return Dead("expired")
    return None


def _to_microsecond(seconds: float) -> timedelta:
    """Return a wait in seconds, rounded to the resolution of PostgreSQL's clock."""
    return timedelta(microseconds=round(seconds * 1_000_000))


def _check_attempts_max(ran: list[Attempted], attempts_max: int) -> None:
    if len(ran) > attempts_max:
        last = ran[-1]
        raise AssertionError(
            f"{attempts_max} attempts did not finish the work; the last one, of item "
            f"{last.item_id} in lane {last.lane!r}, ended with {last.outcome}"
        )
