"""Operators' verbs for single items: cancel, reschedule, retry, hold, release, resolve, skip.

Each is audited with the name of the operator, and the reason where one must be given. A domain
passes its name as `owner` for an item of its own lane; others get LaneIsOwned for a verb that the
domain guards.
"""

from datetime import datetime
from typing import Any, Literal

from penstock.base.errors import InvalidInput
from penstock.kernel.audit import audit
from penstock.kernel.enqueue import check
from penstock.kernel.errors import StateConflict, UnknownItem
from penstock.kernel.guard import check_item
from penstock.kernel.inspect import read_item
from penstock.kernel.item import ItemId, NewItem
from penstock.kernel.promote import bury_heads, promote
from penstock.kernel.settle import to_json, to_text
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


async def cancel(
    db: Connection,
    item_id: ItemId,
    *,
    who: str,
    owner: str | None = None,
    now: datetime | None = None,
) -> None:
    """Cancel an item that no worker holds; a repeat is harmless.

    Held and dead items can be cancelled too, which discards them and frees an order key that a
    dead head blocks. Raises StateConflict for an item that is claimed or done.
    """
    async with db.transaction():
        await check_item(db, item_id, "cancel", owner=owner)
        row = await db.fetchrow(CANCEL, item_id, now)
        if row is None:
            await _refuse(db, item_id, "cancelled", harmless="cancelled")
            return
        if row["vacates_key"]:
            await promote(db, row["lane_id"], [row["order_key"]])
        await audit(db, who, "item.cancelled", subject=str(item_id), before={"state": row["was"]})


async def reschedule(
    db: Connection, item_id: ItemId, due_at: datetime, *, who: str, owner: str | None = None
) -> None:
    """Give an item that no worker holds another due instant; StateConflict for any other."""
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
        after = {"due_at": due_at.isoformat()}
        await audit(db, who, "item.rescheduled", subject=str(item_id), before=before, after=after)


async def retry(
    db: Connection,
    item_id: ItemId,
    *,
    who: str,
    owner: str | None = None,
    now: datetime | None = None,
) -> None:
    """Give a dead item another set of attempts; StateConflict for any other.

    It is due now, or later if an operator ended it before it was due.
    """
    async with db.transaction():
        await check_item(db, item_id, "retry", owner=owner)
        if not await db.fetchval(REPLAY_DEAD, [item_id], now):
            await _refuse(db, item_id, "retried")
        await audit(db, who, "item.retried", subject=str(item_id))


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
    _check_reason(reason)
    async with db.transaction():
        await check_item(db, item_id, "hold", owner=owner)
        found = await read_item(db, item_id)
        if (
            found is None
            or found.state == "parked"
            or not await db.fetchval(HOLD, item_id, to_text(reason), now)
        ):
            await _refuse(db, item_id, "held")
        await audit(db, who, "item.held", subject=str(item_id), after={"reason": reason})


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

    It is due now, or when it was due before an operator held it, if that is later.
    """
    _check_reason(reason)
    async with db.transaction():
        await check_item(db, item_id, "release", owner=owner)
        if not await db.fetchval(RELEASE, item_id, now):
            await _refuse(db, item_id, "released")
        await audit(db, who, "item.released", subject=str(item_id), after={"reason": reason})


async def resolve(
    db: Connection,
    item_id: ItemId,
    outcome: Literal["done", "dead"],
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
    _check_reason(reason)
    if outcome == "dead" and result is not None:
        raise InvalidInput("result", "is for an item that is done")
    async with db.transaction():
        await check_item(db, item_id, "resolve", owner=owner)
        if outcome == "done":
            row = await db.fetchrow(RESOLVE_DONE, item_id, to_text(reason), to_json(result), now)
        else:
            row = await db.fetchrow(RESOLVE_DEAD, item_id, to_text(reason), now)
        if row is None:
            await _refuse(db, item_id, "resolved")
        elif row["order_key"] is not None and outcome == "done":
            await promote(db, row["lane_id"], [row["order_key"]])
        elif row["order_key"] is not None:
            await bury_heads(db, row["lane_id"], [(item_id, row["order_key"])])
        after = {"outcome": outcome, "reason": reason}
        await audit(db, who, "item.resolved", subject=str(item_id), after=after)


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
    _check_reason(reason)
    async with db.transaction():
        await check_item(db, item_id, "skip", owner=owner)
        found = await read_item(db, item_id)
        row = None
        if found is not None and found.state != "parked":
            row = await db.fetchrow(SKIP, item_id, to_text(f"skipped: {reason}"), now)
        if row is None:
            await _refuse(db, item_id, "skipped")
        else:
            await promote(db, row["lane_id"], [row["order_key"]])
            before, after = {"state": row["was"]}, {"reason": reason}
            await audit(db, who, "item.skipped", subject=str(item_id), before=before, after=after)


def _check_reason(reason: str) -> None:
    if not reason.strip():
        raise InvalidInput("reason", "must say why")


async def _refuse(
    db: Connection, item_id: ItemId, wanted: str, *, harmless: str | None = None
) -> None:
    """Raise the reason why no row was changed, unless the item is already in state `harmless`."""
    found: Any = await read_item(db, item_id)
    if found is None:
        raise UnknownItem(item_id)
    if found.state != harmless:
        raise StateConflict(item_id, found.state, wanted)
