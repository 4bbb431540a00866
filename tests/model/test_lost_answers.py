"""A commit that came through while its answer did not: the worker says the same once more."""

from datetime import UTC, datetime

import pytest

from penstock.kernel.claim import Cursor, Lease, claim
from penstock.kernel.enqueue import enqueue_many
from penstock.kernel.item import Dead, Done, Ending, ItemId, NewItem, Retry, Returned
from penstock.kernel.lane import Lane, create_lane
from penstock.kernel.settle import Ended, settle
from penstock.postgres.pool import Connection, Pool

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)

WAITING = "SELECT id FROM penstock.ready ORDER BY id"


async def two_lines(db: Connection) -> tuple[Lane, Lease, list[ItemId]]:
    """Claim the heads of the lines a (three items) and b (one); return all ids, a's first."""
    lane = await create_lane(
        db, "line", who="test", ordering="per_key", on_dead_head="skip", backoff_jitter=0
    )
    items = [NewItem(payload=key, order_key=key, due_at=NOON) for key in "aaab"]
    accepted = await enqueue_many(db, lane.name, items, at=NOON)
    lease = await claim(db, lane.lane_id, Cursor(), limit=10, worker="test", now=NOON)
    assert isinstance(lease, Lease)
    return lane, lease, [each.id for each in accepted]


@pytest.mark.parametrize("ending", [Done(), Dead("no")], ids=["done", "dead"])
async def test_a_repeated_part_of_a_settle_moves_its_line_up_once(db: Pool, ending: Ending) -> None:
    """Two items of one key out at once would be an inversion that nobody can undo."""
    async with db.acquire() as session:
        lane, lease, (_, second, _, _) = await two_lines(session)
        part = [Ended(lease.items[0], ending, 1)]
        assert await settle(session, lane, lease, ended=part, closes=False, now=NOON)

        await settle(session, lane, lease, ended=part, closes=False, now=NOON)

        assert [row["id"] for row in await session.fetch(WAITING)] == [second]


async def test_the_rest_of_a_settle_repeats_its_first_part_without_harm(db: Pool) -> None:
    """This is how the runner repeats: with all that has ended since, and closing the lease."""
    async with db.acquire() as session:
        lane, lease, (_, second, _, _) = await two_lines(session)
        ended = [Ended(claimed, Done(), 1) for claimed in lease.items]
        assert await settle(session, lane, lease, ended=ended[:1], closes=False, now=NOON)

        assert await settle(session, lane, lease, ended=ended, closes=True, now=NOON)

        assert [row["id"] for row in await session.fetch(WAITING)] == [second]


@pytest.mark.parametrize("ending", [Returned(), Retry("no")], ids=["returned", "retry"])
async def test_a_repeated_part_of_a_settle_does_not_take_an_item_from_its_next_worker(
    db: Pool, ending: Ending
) -> None:
    """The item is with somebody else by now; a second copy of it in ready would be run twice."""
    async with db.acquire() as session:
        lane, lease, (first, *_) = await two_lines(session)
        part = [Ended(lease.items[0], ending, 1)]
        later = NOON + lane.lease
        assert await settle(session, lane, lease, ended=part, closes=False, now=NOON)
        again = await claim(session, lane.lane_id, Cursor(), limit=9, worker="other", now=later)
        assert isinstance(again, Lease)
        assert [claimed.id for claimed in again.items] == [first]

        await settle(session, lane, lease, ended=part, closes=False, now=NOON)

        assert await session.fetch(WAITING) == []
