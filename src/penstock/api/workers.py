"""Workers over REST: which run, and when each was last seen."""

import msgspec

from penstock.api import wire
from penstock.kernel.heartbeat import list_workers
from penstock.web.call import WebCall


async def list_all(call: WebCall[wire.WorkerQuery, None]) -> wire.Workers:
    """Show every worker, or those of one lane."""
    async with call.connection() as db:
        found = await list_workers(db, lane=call.parameters.lane)
    return msgspec.convert({"workers": found}, wire.Workers, from_attributes=True)
