"""Operators' verbs for single items: cancel, reschedule, retry, hold, release, resolve, skip.

Each is audited with the name of the operator and the reason, which hold, release, resolve and skip
require. A domain passes its name as `owner` for an item of its own lane; others get LaneIsOwned for
a verb that the domain guards. Raises InvalidInput for a name or a reason that cannot be stored.
"""

import json
from datetime import datetime
from typing import Literal, get_args

from penstock.base.errors import InvalidInput
from penstock.kernel.audit import audit
from penstock.kernel.enqueue import check
from penstock.kernel.errors import StateConflict, UnknownItem
from penstock.kernel.guard import check_item
from penstock.kernel.inspect import ItemView, read_item
from penstock.kernel.item import ItemId, NewItem
from penstock.kernel.promote import bury_heads, promote
from penstock.kernel.settle import REASON_LENGTH_MAX, to_json
from penstock.postgres.pool import Connection
from penstock.postgres.statement import statement

CANCEL = statement(__package__, "cancel.sql")
RESCHEDULE = statement(__package__, "reschedule.sql")
HOLD = statement(__package__, "hold.sql")
RELEASE = statement(__package__, "release.sql")
RESOLVE_DONE = statement(__package__, "resolve_done.sql")
RESOLVE_DEAD = statement(__package__, "resolve_dead.sql")
SKIP = statement(__package__, "skip.sql")
REPLAY_DEAD = statement(__package__, "replay_dead.sql")

Resolution = Literal["done", "dead"]


async def cancel(
    db: Connection,
    item_id: ItemId,
    *,
    who: str,
    reason: str | None = None,
    owner: str | None = None,
    now: datetime | None = None,
) -> None:
    """Cancel an item that no worker holds; a repeat is harmless.

    Held and dead items can be cancelled too, which discards them and frees an order key that a
    dead head blocks. Raises StateConflict for an item that is claimed or done.
    """
    _check(who, reason)
    async with db.transaction():
        await check_item(db, item_id, "cancel", owner=owner)
        row = await db.fetchrow(CANCEL, item_id, now)
        if row is None:
            await _refuse(db, item_id, "cancelled", harmless="cancelled")
            return
        if row["vacates_key"]:
            await promote(db, row["lane_id"], [row["order_key"]])
        before, after = _given(state=row["was"], reason=row["reason"]), _given(reason=reason)
        await audit(db, who, "item.cancelled", subject=str(item_id), before=before, after=after)


async def reschedule(
    db: Connection,
    item_id: ItemId,
    due_at: datetime,
    *,
    who: str,
    reason: str | None = None,
    owner: str | None = None,
) -> None:
    """Give an item that no worker holds another due instant; StateConflict for any other."""
    _check(who, reason)
    check(NewItem(payload=None, due_at=due_at))
    async with db.transaction():
        await check_item(db, item_id, "reschedule", owner=owner)
        row = await db.fetchrow(RESCHEDULE, item_id, due_at)
        if row is None:
            await _refuse(db, item_id, "rescheduled")
            return
        if row["not_after"] is not None and due_at > row["not_after"]:
            raise InvalidInput("due_at", "is after the item's not_after")
        before = {"due_at": row["due_at"].isoformat()}
        after = _given(due_at=due_at.isoformat(), reason=reason)
        await audit(db, who, "item.rescheduled", subject=str(item_id), before=before, after=after)


async def retry(
    db: Connection,
    item_id: ItemId,
    *,
    who: str,
    reason: str | None = None,
    owner: str | None = None,
    now: datetime | None = None,
) -> None:
    """Give a dead item another set of attempts; StateConflict for any other.

    It is due now, or later if an operator ended it before it was due. One past its deadline is
    refused with StateConflict too.
    """
    _check(who, reason)
    async with db.transaction():
        await check_item(db, item_id, "retry", owner=owner)
        found = await read_item(db, item_id)
        if found is None or not await db.fetchval(REPLAY_DEAD, [item_id], now):
            await _refuse(db, item_id, "retried", allowed="dead")
            return
        before, after = _given(state="dead", reason=found.reason), _given(reason=reason)
        await audit(db, who, "item.retried", subject=str(item_id), before=before, after=after)


async def hold(
    db: Connection,
    item_id: ItemId,
    *,
    who: str,
    reason: str,
    owner: str | None = None,
    now: datetime | None = None,
) -> None:
    """Keep a waiting item from being tried until it is released, resolved or cancelled.

    Raises StateConflict for an item that is claimed or has ended, and for one behind the head of
    its order key: the followers of a held item would overtake it.
    """
    check_decision(who=who, reason=reason)
    async with db.transaction():
        await check_item(db, item_id, "hold", owner=owner)
        found = await read_item(db, item_id)
        if (
            found is None
            or found.state == "parked"
            or not await db.fetchval(HOLD, item_id, reason, now)
        ):
            await _refuse(db, item_id, "held")
            return
        before = {"state": found.state, "due_at": found.due_at.isoformat()}
        after = {"reason": reason}
        await audit(db, who, "item.held", subject=str(item_id), before=before, after=after)


async def release(
    db: Connection,
    item_id: ItemId,
    *,
    who: str,
    reason: str,
    owner: str | None = None,
    now: datetime | None = None,
) -> None:
    """Try a held item again with a new set of attempts; StateConflict otherwise.

    It is due now, or when it was due before an operator held it, if that is later. One past its
    deadline is refused with StateConflict too: it would expire at once.
    """
    check_decision(who=who, reason=reason)
    async with db.transaction():
        await check_item(db, item_id, "release", owner=owner)
        row = await db.fetchrow(RELEASE, item_id, now)
        if row is None:
            await _refuse(db, item_id, "released", allowed="held")
            return
        before, after = {"state": "held", "reason": row["reason"]}, {"reason": reason}
        await audit(db, who, "item.released", subject=str(item_id), before=before, after=after)


async def resolve(
    db: Connection,
    item_id: ItemId,
    outcome: Resolution,
    *,
    who: str,
    reason: str,
    result: object = None,
    owner: str | None = None,
    now: datetime | None = None,
) -> None:
    """End a held item as done, with a result, or as dead; StateConflict for any other.

    In an ordered lane the next item of its key follows, as after an attempt with that outcome.
    """
    check_decision(who=who, reason=reason)
    check_resolution(outcome, result)
    stored = to_json(result)
    async with db.transaction():
        await check_item(db, item_id, "resolve", owner=owner)
        if outcome == "done":
            row = await db.fetchrow(RESOLVE_DONE, item_id, reason, stored, who, now)
        else:
            row = await db.fetchrow(RESOLVE_DEAD, item_id, reason, now)
        if row is None:
            await _refuse(db, item_id, "resolved")
            return
        if row["order_key"] is not None and outcome == "done":
            await promote(db, row["lane_id"], [row["order_key"]])
        elif row["order_key"] is not None:
            await bury_heads(db, row["lane_id"], [(item_id, row["order_key"])])
        before = {"state": "held", "reason": row["reason"]}
        after = _given(
            outcome=outcome, reason=reason, result=None if stored is None else json.loads(stored)
        )
        await audit(db, who, "item.resolved", subject=str(item_id), before=before, after=after)


async def skip(
    db: Connection,
    item_id: ItemId,
    *,
    who: str,
    reason: str,
    owner: str | None = None,
    now: datetime | None = None,
) -> None:
    """End the head of an order key as a dead letter that does not block it: the next one follows.

    Raises StateConflict for an item that is claimed, has ended, or is not the head of a key.
    """
    check_decision(who=who, reason=reason)
    async with db.transaction():
        await check_item(db, item_id, "skip", owner=owner)
        found = await read_item(db, item_id)
        row = None
        if found is not None and found.state != "parked":
            row = await db.fetchrow(SKIP, item_id, f"skipped: {reason}", now)
        if found is None or row is None:
            await _refuse(db, item_id, "skipped")
            return
        await promote(db, row["lane_id"], [row["order_key"]])
        before, after = _given(state=row["was"], reason=found.reason), {"reason": reason}
        await audit(db, who, "item.skipped", subject=str(item_id), before=before, after=after)


def check_decision(*, who: str, reason: str) -> None:
    """Raise InvalidInput for an operator or a reason that hold, release, resolve or skip refuse."""
    _check_text("who", who)
    _check_text("reason", reason)


def check_resolution(outcome: Resolution, result: object) -> None:
    """Raise InvalidInput for an outcome and a result that `resolve` refuses."""
    if outcome not in get_args(Resolution):
        raise InvalidInput("outcome", f"must be done or dead, is {outcome!r}")
    if outcome == "dead" and result is not None:
        raise InvalidInput("result", "is for an item that is done")


def _check(who: str, reason: str | None) -> None:
    _check_text("who", who)
    if reason is not None:
        _check_text("reason", reason)


def _check_text(field: str, text: object) -> None:
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput(field, "must be text that is not empty")
    if len(text) > REASON_LENGTH_MAX:
        raise InvalidInput(field, f"is over {REASON_LENGTH_MAX:,} characters")
    if "\x00" in text:
        raise InvalidInput(field, "holds a NUL character")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidInput(field, "holds a lone surrogate")


def _given(**values: object) -> dict[str, object] | None:
    """Return the values that are not None, for the audit; None if there are none."""
    return {name: value for name, value in values.items() if value is not None} or None


async def _refuse(
    db: Connection,
    item_id: ItemId,
    wanted: str,
    *,
    allowed: str | None = None,
    harmless: str | None = None,
) -> None:
    """Raise the reason why no row was changed, unless the item is already in state `harmless`.

    An item in state `allowed` was refused because of its deadline.
    """
    found = await read_item(db, item_id)
    if found is None:
        raise UnknownItem(item_id)
    if found.state != harmless:
        because = "its deadline has passed" if found.state == allowed else _no_head(found, wanted)
        raise StateConflict(item_id, found.state, wanted, because)


def _no_head(found: ItemView, wanted: str) -> str | None:
    """Return that only a head can be skipped or held, if the item could be one in its state."""
    if wanted == "held" and found.state == "parked":
        return "only the head of its order key can be held"
    if wanted == "skipped" and found.state in {"ready", "scheduled", "parked", "held", "dead"}:
        return "only the head of an order key can be skipped"
    return None
