"""Cancel a slot, so that its cell is free for the next request."""

from datetime import datetime

from penstock.base.errors import InvalidInput
from penstock.domains.slots.assign import ITEM_PREFIX
from penstock.domains.slots.errors import UnknownSlot
from penstock.postgres.pool import Connection
from penstock.postgres.statement import statement

CANCEL = statement(__package__, "cancel.sql")


async def cancel(db: Connection, event_id: str, *, who: str, now: datetime | None = None) -> None:
    """Free an event's slot; a repeat is harmless, and the event may request another slot.

    Raises UnknownSlot for an event that never had a slot.
    """
    if event_id.startswith(ITEM_PREFIX):
        raise InvalidInput("eventId", "belongs to an item; cancel the item instead")
    if await db.fetchval(CANCEL, event_id, who, now) is None:
        raise UnknownSlot(event_id)
