"""Runs of taken cells are forgotten once nobody can ask for them."""

from datetime import UTC, datetime, timedelta

from penstock.domains.slots.assign import SlotRequest, assign_many
from penstock.postgres.pool import Pool

DAY = timedelta(days=1)


async def test_runs_that_are_past_for_a_week_are_forgotten_and_their_slots_kept(db: Pool) -> None:
    """Slots far apart are a run each, and would pile up for ever; later ones must stay taken."""
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
