"""How the earlier attempts of claimed items ended, for handlers that must not repeat a call."""

import dataclasses

from msgspec.structs import replace

from penstock.kernel.claim import Lease
from penstock.kernel.item import LastAttempt
from penstock.postgres.pool import Connection
from penstock.postgres.statement import statement

LAST_ATTEMPTS = statement(__package__, "last_attempts.sql")


async def with_history(db: Connection, lease: Lease) -> Lease:
    """Return the lease with the last attempt of each item; no query if none was claimed before.

    Complete for every item that can be claimed: retention keeps the attempts of unfinished items.
    """
    claimed_before = [claimed.id for claimed in lease.items if claimed.attempt > 0]
    if not claimed_before:
        return lease
    last = {
        row["item_id"]: LastAttempt(
            outcome=row["outcome"],
            reason=row["reason"],
            ended_at=row["settled_at"],
            token=row["token"],
        )
        for row in await db.fetch(LAST_ATTEMPTS, claimed_before)
    }
    items = [
        replace(claimed, last=last[claimed.id]) if claimed.id in last else claimed
        for claimed in lease.items
    ]
    return dataclasses.replace(lease, items=items)
