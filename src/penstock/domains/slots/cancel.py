"""Give a slot back to the next caller."""

from datetime import datetime

from penstock.base.errors import InvalidInput, UnknownSlot
from penstock.domains.slots.assign import ITEM_PREFIX
from penstock.postgres.pool import Connection
from penstock.postgres.statement import statement

CANCEL = statement(__package__, "cancel.sql")


async def cancel(db: Connection, event_id: str, *, who: str, now: datetime | None = None) -> None:
    """Give an event's slot back; a repeat is harmless, and the event may be given another one.

    Raises UnknownSlot for an event that never had one.
    """
    if event_id.startswith(ITEM_PREFIX):
        raise InvalidInput("eventId", "belongs to an item; cancel the item instead")
    if await db.fetchval(CANCEL, event_id, who, now) is None:
        raise UnknownSlot(event_id)
