"""A thousand statements request 16:00 tomorrow: each gets its own instant, at a limited rate."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

from penstock import Penstock
from penstock.domains.slots.assign import SlotRequest, assign, assign_many
from penstock.domains.slots.cancel import cancel
from penstock.domains.slots.config import set_config
from penstock.domains.slots.forecast import forecast
from penstock.postgres.pool import Connection

POOL = "statements"  # 100 per window of 4 seconds: one every 40 ms.
COUNT = 1000

app = Penstock()


async def main() -> None:
    """Forecast the duration, take the slots, and cancel one."""
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    wanted_at = tomorrow.replace(hour=16, minute=0, second=0, microsecond=0)
    async with app, app.pool.acquire() as db:
        await set_config(
            db, POOL, who="example", max_per_window=100, window_size=timedelta(seconds=4)
        )
        ahead = await forecast(db, POOL, count=COUNT, from_at=wanted_at)
        print(f"forecast: from {ahead.first_at:%T} to {ahead.last_at:%T.%f}")
        await take_slots(db, wanted_at)
        await cancel_one(db, wanted_at)


async def take_slots(db: Connection, wanted_at: datetime) -> None:
    """Book the burst; a repeated request returns the same slot."""
    requests = [SlotRequest(f"statement-{number}", wanted_at) for number in range(COUNT)]
    slots = [each.slot for each in await assign_many(db, POOL, requests) if each.slot]
    again = await assign(db, POOL, requests[500])
    print(f"booked: from {slots[0].scheduled_at:%T} to {slots[-1].scheduled_at:%T.%f}")
    fullest = max(Counter(slot.window_at for slot in slots).values())
    print(f"the fullest window has {fullest}")
    print(f"asked again, the answer is the same: {again == slots[500]}")


async def cancel_one(db: Connection, wanted_at: datetime) -> None:
    """Cancel one slot; the next request gets the first free place."""
    await cancel(db, "statement-7", who="example")
    slot = await assign(db, POOL, SlotRequest("late-comer", wanted_at))
    print(f"late-comer has the slot of statement-7: {slot.scheduled_at:%T.%f}")


if __name__ == "__main__":
    asyncio.run(main())
