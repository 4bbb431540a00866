"""Batches concurrent single requests: those of one pool share one statement."""

from collections.abc import Sequence
from functools import partial

from penstock.base.coalesce import Coalescer
from penstock.contract.http import ACQUIRE_TIMEOUT
from penstock.domains.slots.assign import (
    GIVEN,
    Assigned,
    SlotRequest,
    assign_chunk,
    check,
    refusal_of,
)
from penstock.domains.slots.errors import UnknownPool
from penstock.postgres.pool import Pool

BATCH_MAX = 1_000  # More than the usual concurrent callers, and still a few milliseconds of work.


class SlotBatcher:
    """One queue of waiting requests per pool."""

    def __init__(self, db: Pool) -> None:
        self._db = db
        self._queues: dict[str, Coalescer[SlotRequest, Assigned]] = {}

    async def assign(self, pool: str, request: SlotRequest) -> Assigned:
        """Return a result with a slot, in one statement with concurrent requests.

        Raises as the verb `assign`.
        """
        check(request)
        queue = self._queues.get(pool)
        if queue is None:
            queue = Coalescer(partial(self._assign, pool), batch_max=BATCH_MAX)
            self._queues[pool] = queue
        try:
            assigned = await queue.ask(request)
        except UnknownPool:
            # Unknown names from callers must not accumulate in memory.
            self._queues.pop(pool, None)
            raise
        if assigned.outcome not in GIVEN:
            raise refusal_of(assigned, pool, request)
        return assigned

    async def _assign(self, pool: str, requests: Sequence[SlotRequest]) -> Sequence[Assigned]:
        async with self._db.acquire(timeout=ACQUIRE_TIMEOUT.total_seconds()) as db:
            return await assign_chunk(db, pool, requests)
