"""Cancel, reschedule and retry single items. Each is audited."""

from datetime import datetime
from typing import Any

from penstock.base.errors import InvalidInput
from penstock.kernel.audit import audit
from penstock.kernel.enqueue import check
from penstock.kernel.errors import StateConflict, UnknownItem
from penstock.kernel.inspect import read_item
from penstock.kernel.item import ItemId, NewItem
from penstock.kernel.promote import promote
from penstock.postgres.pool import Connection
from penstock.postgres.statement import statement

CANCEL = statement(__package__, "cancel.sql")
RESCHEDULE = statement(__package__, "reschedule.sql")
RELEASE = statement(__package__, "release.sql")
REPLAY_DEAD = statement(__package__, "replay_dead.sql")


async def cancel(db: Connection, item_id: ItemId, *, who: str, now: datetime | None = None) -> None:
    """Cancel an item that no worker holds; a repeat is harmless.

    Held and dead items can be cancelled too, which discards them and frees an order key that a
    dead head blocks. Raises StateConflict for an item that is claimed or done.
    """
    async with db.transaction():
        row = await db.fetchrow(CANCEL, item_id, now)
        if row is None:
            await _refuse(db, item_id, "cancelled", harmless="cancelled")
            return
        if row["vacates_key"]:
            await promote(db, row["lane_id"], [row["order_key"]])
        await audit(db, who, "item.cancelled", subject=str(item_id), before={"state": row["was"]})


async def reschedule(db: Connection, item_id: ItemId, due_at: datetime, *, who: str) -> None:
    """Give an item that no worker holds another due instant; StateConflict for any other."""
    check(NewItem(payload=None, due_at=due_at))
    async with db.transaction():
        row = await db.fetchrow(RESCHEDULE, item_id, due_at)
        if row is None:
            await _refuse(db, item_id, "rescheduled")
            return
        if row["not_after"] is not None and due_at > row["not_after"]:
            raise InvalidInput("due_at", "is after the item's not_after")
        before = {"due_at": row["due_at"].isoformat()}
        after = {"due_at": due_at.isoformat()}
        await audit(db, who, "item.rescheduled", subject=str(item_id), before=before, after=after)


async def retry(db: Connection, item_id: ItemId, *, who: str, now: datetime | None = None) -> None:
    """Give a dead or held item another set of attempts, from now on; StateConflict otherwise."""
    async with db.transaction():
        is_released = await db.fetchval(RELEASE, item_id, now)
        if not is_released and not await db.fetchval(REPLAY_DEAD, [item_id], now):
            await _refuse(db, item_id, "retried")
        await audit(db, who, "item.retried", subject=str(item_id))


async def _refuse(
    db: Connection, item_id: ItemId, wanted: str, *, harmless: str | None = None
) -> None:
    """Raise the reason why no row was changed, unless the item is already in state `harmless`."""
    found: Any = await read_item(db, item_id)
    if found is None:
        raise UnknownItem(item_id)
    if found.state != harmless:
        raise StateConflict(item_id, found.state, wanted)
