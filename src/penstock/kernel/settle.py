"""Write how attempts ended: fenced by the lease's token, one statement for a whole batch."""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import assert_never

import msgspec

from penstock.kernel.claim import Claimed, Lease
from penstock.kernel.item import Dead, Done, Ending, Hold, Retry, Returned, Snooze
from penstock.kernel.lane import Lane
from penstock.kernel.promote import bury_heads, promote
from penstock.postgres.pool import Connection
from penstock.postgres.statement import statement

SETTLE = statement(__package__, "settle.sql")
SETTLE_LATE = statement(__package__, "settle_late.sql")

REASON_LENGTH_MAX = 1_000  # Enough for any message; a stack trace belongs in a log.
RESULT_LENGTH_MAX = 65_536  # What a response body that is worth keeping may have.
WAIT_MAX = timedelta(days=3650)  # A handler's slip must not become an instant that no table takes.


class Ended(msgspec.Struct, frozen=True):
    """One item of a lease and how its attempt ended. A struct for its speed, as Item."""

    claimed: Claimed
    ending: Ending
    duration_ms: int


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What is written about one ended attempt. A struct for its speed, as Item."""

    attempt: int
    forgiven: int
    outcome: str
    again_in: float | None = None
    reason: str | None = None
    result: str | None = None


async def settle(
    db: Connection,
    lane: Lane,
    lease: Lease,
    *,
    ended: Sequence[Ended],
    closes: bool,
    now: datetime | None = None,
) -> bool:
    """Write `ended` in the caller's transaction and say whether the lease was still ours.

    `closes`: nothing of the lease is left after this. If it was lost, the results are kept as late
    and change nothing. A repeat after a lost answer is harmless.
    """
    records = [record(each, lane, since=now or lease.claimed_at) for each in ended]
    is_settled = await db.fetchval(
        SETTLE,
        lease.token,
        closes,
        [each.claimed.id for each in ended],
        [each.attempt for each in records],
        [each.forgiven for each in records],
        [each.outcome for each in records],
        [each.duration_ms for each in ended],
        [each.again_in for each in records],
        [each.reason for each in records],
        [each.result for each in records],
        [each.claimed.due_at if isinstance(each.ending, Returned) else None for each in ended],
        now,
    )
    if not is_settled:
        await _keep_late(db, lease, list(zip(ended, records, strict=True)), now=now)
        return False
    if lane.ordering == "per_key":
        await _move_lines_up(db, lane, list(zip(ended, records, strict=True)))
    return True


def record(ended: Ended, lane: Lane, *, since: datetime) -> Record:
    """Decide what an ending means under the lane's policy: retries end, deadlines hold."""
    claimed = ended.claimed
    attempt = claimed.attempt + 1
    spent = attempt - claimed.forgiven
    match ended.ending:
        case Done(result):
            return Record(
                attempt=attempt, forgiven=claimed.forgiven, outcome="done", result=_json(result)
            )
        case Retry(reason, after, result):
            if spent >= lane.max_attempts:
                return _end(claimed, "dead", reason=reason, result=result)
            wait = after if after is not None else lane.backoff.delay(spent, chance=random.random())  # noqa: S311
            return _again(ended, "retry", wait, reason=reason, result=result, since=since)
        case Snooze(after, reason):
            return _again(ended, "snooze", after, reason=reason, since=since)
        case Hold(reason, result):
            return _end(claimed, "hold", reason=reason, result=result)
        case Dead(reason, result):
            return _end(claimed, "dead", reason=reason, result=result)
        case Returned():
            return Record(attempt=claimed.attempt, forgiven=claimed.forgiven, outcome="returned")
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
) -> Record:
    """Repeat the item later, unless that would be after its deadline."""
    claimed = ended.claimed
    wait = min(wait, WAIT_MAX)
    worked = timedelta(milliseconds=ended.duration_ms)
    if claimed.not_after is not None and since + worked + wait > claimed.not_after:
        return _end(claimed, "dead", reason="expired", result=result)
    return Record(
        attempt=claimed.attempt + 1,
        forgiven=claimed.forgiven + (outcome == "snooze"),
        outcome=outcome,
        again_in=max(0.0, wait.total_seconds()),
        reason=_text(reason),
        result=_json(result),
    )


def _end(claimed: Claimed, outcome: str, *, reason: str, result: object) -> Record:
    return Record(
        attempt=claimed.attempt + 1,
        forgiven=claimed.forgiven,
        outcome=outcome,
        reason=_text(reason),
        result=_json(result),
    )


async def _move_lines_up(
    db: Connection, lane: Lane, written: Sequence[tuple[Ended, Record]]
) -> None:
    """Let the followers of ended heads go on, as the lane says for those that died."""
    done: list[str] = []
    dead: list[tuple[int, str]] = []
    for each, of_it in written:
        if each.claimed.order_key is None:
            continue
        if of_it.outcome == "done":
            done.append(each.claimed.order_key)
        elif of_it.outcome == "dead":
            dead.append((each.claimed.id, each.claimed.order_key))
    if done:
        await promote(db, lane.lane_id, done)
    if dead:
        await bury_heads(db, lane.lane_id, dead)


async def _keep_late(
    db: Connection,
    lease: Lease,
    written: Sequence[tuple[Ended, Record]],
    *,
    now: datetime | None,
) -> None:
    kept = [(each.claimed.id, of_it) for each, of_it in written if of_it.outcome != "returned"]
    await db.fetch(
        SETTLE_LATE,
        lease.token,
        [item_id for item_id, _ in kept],
        [of_it.attempt for _, of_it in kept],
        [of_it.outcome for _, of_it in kept],
        [of_it.reason for _, of_it in kept],
        now,
    )


# Handlers are strangers: what they return must never make the settling of a whole batch fail.


def _text(reason: str) -> str:
    """Return a reason that PostgreSQL can store."""
    clean = reason[:REASON_LENGTH_MAX].replace("\x00", "\ufffd")
    return clean.encode("utf-8", "replace").decode()


def _json(result: object) -> str | None:
    """Return a result as JSON that PostgreSQL can store, or a note that says why it is missing."""
    if result is None:
        return None
    try:
        text = msgspec.json.encode(result).decode()
    except (TypeError, ValueError, RecursionError):
        return '{"omitted": "the result has no JSON form"}'
    if len(text) > RESULT_LENGTH_MAX:
        return '{"omitted": "the result is too long"}'
    return text.replace("\\u0000", "\\ufffd")
