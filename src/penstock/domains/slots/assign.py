"""Assign slots to callers' events. The database function decides; one pool is one lock."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Literal

import asyncpg
from msgspec import Struct

from penstock.base.errors import InvalidInput, PenstockError
from penstock.calendar.instant import check_instant
from penstock.domains.slots.config import extend
from penstock.domains.slots.errors import PoolExhausted, SlotConflict, UnknownPool
from penstock.domains.slots.slot import Slot
from penstock.kernel.errors import SlotRefused
from penstock.postgres.pool import Connection, Row
from penstock.postgres.statement import statement

ASSIGN = statement(__package__, "assign.sql")

ASSIGN_TIMEOUT = timedelta(minutes=5)  # A reflow of millions of slots holds the pool's lock.
CHUNK = 5_000  # Requests per statement: larger is not faster, and holds the pool's lock longer.
EVENT_ID_LENGTH_MAX = 50
ITEM_PREFIX = (
    "item:"  # Event ids reserved for items of lanes, whose slots the kernel takes and frees.
)

AssignOutcome = Literal[
    "assigned", "existing", "conflict", "beyond_horizon", "after_cut_off", "day_full", "exhausted"
]

GIVEN = ("assigned", "existing")  # The outcomes of a request that is answered with its slot.


class SlotRequest(Struct, frozen=True, gc=False):
    """A request for a slot at or after an instant, for one caller's event."""

    event_id: str
    requested_at: datetime


class Assigned(Struct, frozen=True, gc=False):
    """The result of a request. If the event had a slot before, `slot` is that one."""

    outcome: AssignOutcome
    slot: Slot | None


async def assign(
    db: Connection,
    pool: str,
    request: SlotRequest,
    *,
    now: datetime | None = None,
) -> Slot:
    """Return the event's slot; an event that has one keeps it, for any requested time or pool.

    Raises SlotConflict, SlotRefused, InvalidInput, UnknownPool or PoolExhausted; then nothing is
    booked.
    """
    (assigned,) = await assign_many(db, pool, [request], now=now)
    return slot_of(assigned, pool, request)


async def assign_many(
    db: Connection,
    pool: str,
    requests: Sequence[SlotRequest],
    *,
    now: datetime | None = None,
) -> list[Assigned]:
    """Return one result per request, in order; each chunk is a transaction, if none is open.

    Raises UnknownPool, or InvalidInput if `check` rejects one of them. All other results are
    outcomes.
    """
    for index, request in enumerate(requests):
        try:
            check(request)
        except InvalidInput as refused:
            raise InvalidInput(f"requests[{index}].{refused.field}", refused.reason) from refused
    answers: list[Assigned] = []
    for start in range(0, len(requests), CHUNK):
        answers += await assign_chunk(db, pool, requests[start : start + CHUNK], now=now)
    return answers


async def assign_chunk(
    db: Connection, pool: str, requests: Sequence[SlotRequest], *, now: datetime | None = None
) -> list[Assigned]:
    """Do as `assign_many` with one chunk of requests that passed `check`.

    If the known opening periods are used up, extend them and repeat the remaining requests.
    """
    answers: dict[int, Assigned] = {}
    left = range(len(requests))
    while left:
        with _translated(pool):
            rows = await db.fetch(
                ASSIGN,
                pool,
                [requests[index].event_id for index in left],
                [requests[index].requested_at for index in left],
                now,
                timeout=ASSIGN_TIMEOUT.total_seconds(),
            )
        for index, row in zip(left, rows, strict=True):
            answers[index] = _to_assigned(requests[index], pool, row)
        left = [index for index in left if answers[index].outcome == "exhausted"]
        if left and not await extend(db, pool):
            break
    return [answers[index] for index in range(len(requests))]


def check(request: SlotRequest) -> None:
    """Raise InvalidInput for an invalid event id or time."""
    if not 1 <= len(request.event_id) <= EVENT_ID_LENGTH_MAX:
        raise InvalidInput("eventId", f"must have 1 to {EVENT_ID_LENGTH_MAX} characters")
    if "\x00" in request.event_id:
        raise InvalidInput("eventId", "holds a NUL character")
    if request.event_id.startswith(ITEM_PREFIX):
        raise InvalidInput("eventId", f"the prefix {ITEM_PREFIX} is reserved for items of lanes")
    check_instant(request.requested_at, "requestedTime")


def slot_of(assigned: Assigned, pool: str, request: SlotRequest) -> Slot:
    """Return the slot of a request, or raise why there is none."""
    if assigned.outcome in GIVEN:
        assert assigned.slot is not None, "these outcomes have a slot"
        return assigned.slot
    raise refusal_of(assigned, pool, request)


def refusal_of(assigned: Assigned, pool: str, request: SlotRequest) -> PenstockError:
    """Return the error for a request that got no slot."""
    match assigned.outcome:
        case "conflict":
            assert assigned.slot is not None, "a conflict has the existing slot"
            return SlotConflict(request.event_id, assigned.slot.shown())
        case "beyond_horizon":
            return InvalidInput("requestedTime", "is beyond the horizon of this config")
        case "exhausted":
            return PoolExhausted(pool)
        case reason:
            return SlotRefused(pool, reason)


def _to_assigned(request: SlotRequest, asked: str, row: Row) -> Assigned:
    # By position, in the order of the statement: access by name takes twice as long.
    outcome, pool, requested_at, scheduled_at, window_at, position, config_id, created_at = row
    outcome = outcome or "assigned"
    if scheduled_at is None:
        return Assigned(outcome, None)
    slot = Slot(
        event_id=request.event_id,
        pool=pool or asked,
        requested_at=requested_at or request.requested_at,
        scheduled_at=scheduled_at,
        window_at=window_at,
        position=position,
        config_id=config_id,
        created_at=created_at,
    )
    return Assigned(outcome, slot)


@contextmanager
def _translated(pool: str) -> Generator[None]:
    try:
        yield
    except asyncpg.PostgresError as raised:
        if getattr(raised, "sqlstate", None) == "PS404":
            raise UnknownPool(pool) from raised
        raise
