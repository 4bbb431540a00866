"""A worker that was stopped for longer than its lease starts nothing that it held."""

import asyncio
from datetime import timedelta
from time import monotonic

import pytest

from penstock import Item, NewItem, Penstock

LEASE = timedelta(seconds=1)


@pytest.mark.covers("E74")
async def test_an_item_is_not_started_under_a_lease_that_is_over(dsn: str) -> None:
    """Somebody else may have it by then, and the call could be made twice."""
    app = Penstock(dsn)
    tokens: dict[int, int] = {}
    both_ran = asyncio.Event()

    @app.handler("calls", lease=LEASE, concurrency=1)
    async def call(item: Item[int]) -> None:
        if not tokens:
            stalls_until = monotonic() + 1.5 * LEASE.total_seconds()
            while monotonic() < stalls_until:
                pass  # As a process that is swapped out: no heartbeat, no notice of time.
        tokens[item.payload] = item.token
        if len(tokens) == 2:
            both_ran.set()

    async with app:
        accepted = await app.enqueue_many("calls", [NewItem(payload=n) for n in (1, 2)])
        async with asyncio.timeout(30):
            await app.run_worker(both_ran)

    assert len(accepted) == 2
    assert tokens[2] > tokens[1]
