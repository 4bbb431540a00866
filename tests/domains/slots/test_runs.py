"""Runs of past cells are deleted, because no request can get such a cell."""

from datetime import UTC, datetime, timedelta

from penstock.domains.slots.assign import SlotRequest, assign_many
from penstock.postgres.pool import Pool

DAY = timedelta(days=1)


async def test_runs_that_ended_a_week_ago_are_deleted_and_their_slots_kept(db: Pool) -> None:
    """Slots that are not adjacent are one run each, and would accumulate; later runs must stay."""
    now = datetime.now(UTC)
    wanted = [now + days * DAY for days in (1, 2, 20)]
    requests = [SlotRequest(f"event-{n}", at) for n, at in enumerate(wanted)]
    async with db.acquire() as connection:
        await assign_many(connection, "default", requests)

        await connection.execute(
            "SELECT penstock.forget_old_runs(pool_id, $1) FROM penstock.slot_pool", now + 10 * DAY
        )

        assert await connection.fetchval("SELECT count(*) FROM penstock.slot_run") == 1
        assert await connection.fetchval("SELECT count(*) FROM penstock.slot") == 3
