"""The time zone of a caller's session must not change its slots."""

from datetime import UTC, datetime, timedelta

from penstock.calendar.calendar import Calendar, Hours
from penstock.domains.slots.assign import SlotRequest, assign
from penstock.domains.slots.config import set_config
from penstock.postgres.pool import Pool

NOW = datetime(2027, 3, 20, tzinfo=UTC)
# In Berlin, 28 March 2027 has 23 hours.
WANTED = datetime(2027, 3, 28, 23, 40, tzinfo=UTC)
LATE_HOURS = Calendar(
    time_zone="UTC",
    hours=(
        Hours(
            days=("mon", "tue", "wed", "thu", "fri", "sat", "sun"), opens="23:40", closes="24:00"
        ),
    ),
)


async def test_a_session_whose_day_has_23_hours_counts_the_same_slots(db: Pool) -> None:
    """In that session an added day has 23 hours, so that a function could miss slots."""
    async with db.acquire() as connection:
        await connection.execute("SET TIME ZONE 'Europe/Berlin'")
        for capacity in (86_400, 43_200):
            await set_config(
                connection,
                "daily",
                who="test",
                max_per_window=capacity,
                window_size=timedelta(days=1),
                calendar=LATE_HOURS,
                now=NOW,
            )
            slot = await assign(
                connection, "daily", SlotRequest(f"event-{capacity}", WANTED), now=NOW
            )
        await connection.execute("RESET TIME ZONE")

    assert slot.scheduled_at == WANTED + timedelta(seconds=2)
