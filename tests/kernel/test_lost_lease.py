"""A worker that was suspended for longer than its lease starts none of its items."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Thread

import pytest

from penstock import Item, NewItem, Penstock
from penstock.kernel.sweep import rescue
from penstock.postgres.pool import connect
from tests.kernel.scene import HOUR, PATIENCE, outcomes_of

LEASE = timedelta(seconds=2)  # The first item starts well before LATER, also on a busy machine.
# The second item is claimed with the first and starts this much later, while the worker is stopped.
LATER = 1.5 * LEASE
STOP = 2 * LEASE


@dataclass(slots=True)
class Stopped:
    """What a worker did that was stopped while it ran the first of two items of one lease."""

    runs: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])  # Token, payload.
    leased_together: int = 0
    outcomes: list[list[str]] = field(default_factory=list[list[str]])


async def stop_in_first_call(dsn: str, *, runs: int, stop: Callable[[], None]) -> Stopped:
    """Run both items until there were so many runs; `stop` blocks the whole process once."""
    app = Penstock(dsn)
    seen = Stopped()
    all_ran = asyncio.Event()

    @app.handler("calls", lease=LEASE, pre_start_buffer=HOUR)
    async def call(item: Item[int]) -> None:
        seen.runs.append((item.token, item.payload))
        if len(seen.runs) == 1:
            leased = "SELECT cardinality(item_ids) FROM penstock.lease"
            seen.leased_together = await app.pool.fetchval(leased)
            stop()
        if len(seen.runs) == runs:
            all_ran.set()

    async with app:
        later_at = datetime.now(UTC) + LATER
        items = [NewItem(payload=1), NewItem(payload=2, due_at=later_at)]
        accepted = await app.enqueue_many("calls", items)
        async with asyncio.timeout(PATIENCE):
            await app.run_worker(all_ran)
        seen.outcomes = [await outcomes_of(app.pool, each.id) for each in accepted]
    return seen


def block(work: Callable[[], object]) -> None:
    """Block this thread, and the event loop with it, as a process that is swapped out."""
    other = Thread(target=work)
    other.start()
    other.join()


@pytest.mark.covers("E74")
async def test_an_item_is_not_started_under_a_lease_that_is_over(dsn: str) -> None:
    """Another worker may hold it by then, and the call could be made twice."""
    seen = await stop_in_first_call(
        dsn, runs=2, stop=lambda: block(lambda: asyncio.run(pass_time(dsn)))
    )

    assert seen.leased_together == 2
    (token, first), (later_token, second) = seen.runs
    assert (first, second) == (1, 2)
    assert later_token > token
    assert seen.outcomes == [["done"], ["done"]]


@pytest.mark.covers("E74")
async def test_a_worker_that_wakes_after_its_items_were_put_back_changes_nothing(dsn: str) -> None:
    """Its next call is not made, and what the interrupted call returns is recorded as late."""
    seen = await stop_in_first_call(
        dsn, runs=3, stop=lambda: block(lambda: asyncio.run(pass_time(dsn, puts_back=True)))
    )

    assert seen.leased_together == 2
    stalled_token = seen.runs[0][0]
    assert [payload for token, payload in seen.runs if token == stalled_token] == [1]
    assert sorted(payload for token, payload in seen.runs if token > stalled_token) == [1, 2]
    assert sorted(seen.outcomes[0]) == ["done", "late: done", "lost"]
    assert seen.outcomes[1] == ["lost", "done"]


async def pass_time(dsn: str, *, puts_back: bool = False) -> None:
    """Wait until the stop is over by the server's clock; put items back as another's sweeper."""
    db = await connect(dsn)
    wakes_at = await db.fetchval("SELECT clock_timestamp() + $1::interval", STOP)
    while await db.fetchval("SELECT clock_timestamp()") < wakes_at:
        if puts_back:
            await rescue(db)
    await db.close()
