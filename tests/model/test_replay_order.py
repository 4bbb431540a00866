"""Found by the model: a bulk replay put the items of one key in the order of the query's plan."""

from datetime import UTC, datetime

from penstock.kernel.claim import Cursor, Lease, claim
from penstock.kernel.enqueue import enqueue_many
from penstock.kernel.item import Dead, NewItem
from penstock.kernel.lane import create_lane
from penstock.kernel.operate import retry
from penstock.kernel.replay import continue_replays, start_replay
from penstock.kernel.settle import Ended, settle
from penstock.postgres.pool import Pool

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)

LINE = """
SELECT id, 0 AS position FROM penstock.ready
UNION ALL SELECT id, position FROM penstock.parked
ORDER BY position
"""


async def test_replayed_items_of_a_key_line_up_in_the_order_they_were_accepted(db: Pool) -> None:
    """They may have died in any order; whoever replays them all at once wants the first first."""
    async with db.acquire() as session:
        lane = await create_lane(
            session, "line", who="test", ordering="per_key", on_dead_head="skip"
        )
        items = [NewItem(payload=n, order_key="a", due_at=NOON) for n in range(4)]
        ids = [each.id for each in await enqueue_many(session, lane.name, items, at=NOON)]

        async def bury_the_line() -> None:
            while isinstance(
                lease := await claim(
                    session, lane.lane_id, Cursor(), limit=9, worker="test", now=NOON
                ),
                Lease,
            ):
                ended = [Ended(claimed, Dead("no"), 1) for claimed in lease.items]
                await settle(session, lane, lease, ended=ended, closes=True, now=NOON)

        await bury_the_line()
        for item_id in reversed(ids):  # Now they stand in the table the other way round.
            await retry(session, item_id, who="test", now=NOON)
            await bury_the_line()

        # A plan that PostgreSQL may choose by itself once many are dead: in the table's order.
        for way in ("nestloop", "mergejoin", "indexscan", "bitmapscan"):
            await session.execute("SELECT set_config('enable_' || $1, 'off', false)", way)
        await start_replay(session, lane.name, who="test", now=NOON)
        await continue_replays(session, now=NOON)

        assert [row["id"] for row in await session.fetch(LINE)] == ids
