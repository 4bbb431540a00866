"""Write how attempts ended: fenced by the lease's token, one statement for a whole batch."""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import assert_never

import msgspec

from penstock.base.errors import text_of
from penstock.kernel import payload
from penstock.kernel.claim import Claimed, Lease
from penstock.kernel.item import (
    DONE,
    Dead,
    Done,
    Ending,
    Hold,
    Retry,
    Returned,
    SettledAttempt,
    Snooze,
)
from penstock.kernel.kind import RecordSettled
from penstock.kernel.lane import Lane
from penstock.kernel.promote import bury_heads, promote
from penstock.postgres.array import to_array
from penstock.postgres.pool import Connection
from penstock.postgres.statement import statement

SETTLE = statement(__package__, "settle.sql")
SETTLE_LATE = statement(__package__, "settle_late.sql")

REASON_LENGTH_MAX = 1_000  # Enough for any message; a stack trace belongs in a log.
# 16 KiB of a response body, with each character escaped as six.
RESULT_LENGTH_MAX = 131_072
WAIT_MAX = timedelta(days=3650)  # A wrong value must not become an instant out of range.


class Ended(msgspec.Struct, frozen=True):
    """One item of a lease and how its attempt ended. A struct because it is faster, see Item."""

    claimed: Claimed
    ending: Ending
    duration_ms: int


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is written about an attempt."""

    outcome: str
    again_in: float | None = None
    reason: str | None = None
    result: str | None = None
    due_at: datetime | None = None


PLAIN = AttemptRecord(outcome="done")


class Settled(msgspec.Struct, frozen=True):
    """The results were accepted. `again_in`: seconds until the first repeated item is due.

    `states` are the domain's own names of the endings, if its `record` returned them.
    `has_vacated`: the followers of some heads could not be promoted yet.
    """

    again_in: float | None
    states: Sequence[str] | None = None
    has_vacated: bool = False


async def settle(
    db: Connection,
    lane: Lane,
    lease: Lease,
    *,
    ended: Sequence[Ended],
    closes: bool,
    record_settled: RecordSettled | None = None,
    now: datetime | None = None,
) -> Settled | None:
    """Write `ended` in the caller's transaction; return None if the lease was lost.

    `closes`: the lease has no other unsettled items. If it was lost, the results are recorded as
    late and change nothing. A repeat after a lost answer is harmless. `record_settled` gets what
    was written, except items that were returned unstarted.
    """
    written, places = _written(ended, lane, since=now or lease.claimed_at)
    repeated = await db.fetchval(
        SETTLE,
        lease.token,
        closes,
        to_array([each.claimed.id for each in ended]),
        to_array([each.duration_ms for each in ended]),
        to_array(places),
        [each.outcome for each in written],
        [each.again_in for each in written],
        [each.reason for each in written],
        [each.result for each in written],
        [each.due_at for each in written],
        now,
        lane.concurrency_total is not None,
    )
    if repeated is None:
        records = [written[place - 1] for place in places]
        await _keep_late(db, lease, ended, records=records, now=now)
        return None
    states: Sequence[str] | None = None
    has_vacated = False
    if lane.ordering == "per_key" or record_settled is not None:
        # What an earlier settle has written must be neither promoted nor recorded again.
        fresh = [
            (each, written[place - 1])
            for each, place in zip(ended, places, strict=True)
            if each.claimed.id not in repeated
        ]
        if lane.ordering == "per_key":
            has_vacated = await _promote_followers(db, lane, fresh)
        if record_settled is not None:
            states = await record_settled(db, lease.token, _settled_attempts(lease, fresh))
    waits = (each.again_in for each in written if each.again_in is not None)
    return Settled(min(waits, default=None), states, has_vacated)


def _written(
    ended: Sequence[Ended], lane: Lane, *, since: datetime
) -> tuple[list[AttemptRecord], list[int]]:
    """Return the records to write, and for each item the index of its record, from 1 on.

    The first record is a plain Done. If a handler returns one Done object for many items, they
    share one record.
    """
    written, places = [PLAIN], list[int]()
    alike = {id(DONE): 1}
    for each in ended:
        place = alike.get(id(each.ending))
        if place is None:
            written.append(record(each, lane, since=since))
            place = len(written)
            if isinstance(each.ending, Done):
                alike[id(each.ending)] = place
        places.append(place)
    return written, places


def record(ended: Ended, lane: Lane, *, since: datetime) -> AttemptRecord:
    """Apply the lane's policy to an ending: attempts are limited, deadlines are kept."""
    match ended.ending:
        case Done(result):
            return AttemptRecord(outcome="done", result=to_json(result))
        case Retry(reason, after, result, attempts_max):
            spent = ended.claimed.attempt + 1 - ended.claimed.forgiven
            if spent >= _attempts(attempts_max, lane):
                return AttemptRecord(outcome="dead", reason=to_text(reason), result=to_json(result))
            wait = _wait(after, lane, spent=spent)
            return _again(ended, "retry", wait, reason=reason, result=result, since=since)
        case Snooze(after, reason):
            wait = _wait(after, lane, spent=1)
            return _again(ended, "snooze", wait, reason=reason, since=since)
        case Hold(reason, result):
            return AttemptRecord(outcome="hold", reason=to_text(reason), result=to_json(result))
        case Dead(reason, result):
            return AttemptRecord(outcome="dead", reason=to_text(reason), result=to_json(result))
        case Returned():
            return AttemptRecord(outcome="returned", due_at=ended.claimed.due_at)
        case _:
            assert_never(ended.ending)


def _again(
    ended: Ended,
    outcome: str,
    wait: timedelta,
    *,
    reason: str,
    since: datetime,
    result: object = None,
) -> AttemptRecord:
    """Repeat the item later, unless that would be after its deadline.

    One that was claimed early is not repeated before it is due.
    """
    worked = timedelta(milliseconds=ended.duration_ms)
    not_after = ended.claimed.not_after
    if not_after is not None and since + worked + wait > not_after:
        return AttemptRecord(outcome="dead", reason="expired", result=to_json(result))
    return AttemptRecord(
        outcome=outcome,
        again_in=wait.total_seconds(),
        reason=to_text(reason),
        result=to_json(result),
        due_at=ended.claimed.due_at,
    )


async def _promote_followers(
    db: Connection, lane: Lane, ended: Sequence[tuple[Ended, AttemptRecord]]
) -> bool:
    """Promote the followers of heads that are done, and apply `on_dead_head` to dead ones.

    Returns whether a done head's key could not be promoted yet.
    """
    done: list[str] = []
    dead: list[tuple[int, str]] = []
    for each, written in ended:
        claimed = each.claimed
        if claimed.order_key is None:
            continue
        if written.outcome == "done":
            done.append(claimed.order_key)
        elif written.outcome == "dead":
            dead.append((claimed.id, claimed.order_key))
    left = await promote(db, lane.lane_id, done) if done else 0
    if dead:
        await bury_heads(db, lane.lane_id, dead)
    return left > 0


def _settled_attempts(
    lease: Lease, ended: Sequence[tuple[Ended, AttemptRecord]]
) -> list[SettledAttempt]:
    return [
        SettledAttempt(
            item_id=each.claimed.id,
            attempt=each.claimed.attempt + 1,
            claimed_at=lease.claimed_at,
            duration_ms=each.duration_ms,
            ending=each.ending,
            outcome=written.outcome,
            reason=written.reason,
            preloaded=_preloaded(each.claimed),
        )
        for each, written in ended
        if not isinstance(each.ending, Returned)
    ]


def _preloaded(claimed: Claimed) -> object:
    return None if claimed.preloaded is None else claimed.preloaded.payload


async def _keep_late(
    db: Connection,
    lease: Lease,
    ended: Sequence[Ended],
    *,
    records: Sequence[AttemptRecord],
    now: datetime | None,
) -> None:
    kept = [
        (each.claimed, written)
        for each, written in zip(ended, records, strict=True)
        if written.outcome != "returned"
    ]
    await db.fetch(
        SETTLE_LATE,
        lease.token,
        [claimed.id for claimed, _ in kept],
        [claimed.attempt + 1 for claimed, _ in kept],
        [written.outcome for _, written in kept],
        [written.reason for _, written in kept],
        [written.result for _, written in kept],
        now,
    )


# A handler may return anything: it must never make the settling of a whole batch fail.


def _wait(after: object, lane: Lane, *, spent: int) -> timedelta:
    """Return the requested wait within limits; for a value of another type, the backoff."""
    if isinstance(after, timedelta):
        return max(timedelta(0), min(after, WAIT_MAX))
    return lane.backoff.delay(spent, chance=random.random())  # noqa: S311  Not a secret.


def _attempts(attempts_max: object, lane: Lane) -> int:
    """Return the maximum of attempts; for a value of another type, the lane's."""
    return attempts_max if isinstance(attempts_max, int) else lane.max_attempts


def to_text(reason: object) -> str:
    """Return a reason that PostgreSQL can store."""
    clean = text_of(reason)[:REASON_LENGTH_MAX].replace("\x00", "\ufffd")
    if clean.isascii():
        return clean  # Nearly always.
    return clean.encode("utf-8", "replace").decode()


def to_json(result: object) -> str | None:
    """Return a result as JSON that PostgreSQL can store, or a note why it is omitted."""
    if result is None:
        return None
    try:
        text = msgspec.json.encode(result).decode()
        msgspec.json.decode(text)  # A msgspec.Raw may contain anything.
    except Exception:  # noqa: BLE001  Its own attributes may raise anything.
        return '{"omitted": "the result has no JSON form"}'
    if len(text) > RESULT_LENGTH_MAX:
        return '{"omitted": "the result is too long"}'
    return payload.without_nul(text)
