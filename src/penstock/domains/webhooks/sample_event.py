"""Send a test event to one subscription alone, whatever it asks for."""

import msgspec

from penstock.domains.webhooks.accept import accept_events
from penstock.domains.webhooks.event import TEST_TYPE, AcceptedEvent, NewEvent
from penstock.domains.webhooks.subscription import read_subscription
from penstock.postgres.pool import Connection
from penstock.postgres.statement import statement

SEND_TEST = statement(__package__, "send_test.sql")


async def send_test(db: Connection, subscription_id: str) -> AcceptedEvent:
    """Accept an event that nobody else gets; raises UnknownSubscription."""
    async with db.transaction():
        found = await read_subscription(db, subscription_id)
        data = msgspec.json.encode({"subscription_id": found.id}).decode()
        event = NewEvent(type=TEST_TYPE, data=data, tenant=found.tenant, source="penstock")
        (accepted,) = await accept_events(db, [event])
        await db.execute(SEND_TEST, found.tenant, accepted.event_id, found.number)
    return msgspec.structs.replace(accepted, deliveries=1)
