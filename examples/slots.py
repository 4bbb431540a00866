"""A thousand statements all want 16:00 tomorrow: each is given an instant at once, at a pace."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

from penstock import Penstock
from penstock.domains.slots.assign import SlotRequest, assign, assign_many
from penstock.domains.slots.cancel import cancel
from penstock.domains.slots.config import set_config
from penstock.domains.slots.forecast import forecast
from penstock.postgres.pool import Connection

POOL = "statements"  # 100 in every window of 4 seconds, that is one every 40 ms.
COUNT = 1000

app = Penstock()


async def main() -> None:
    """Ask how long it will take, take the slots, and give one back."""
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    wanted_at = tomorrow.replace(hour=16, minute=0, second=0, microsecond=0)
    async with app, app.pool.acquire() as db:
        await set_config(
            db, POOL, who="example", max_per_window=100, window_size=timedelta(seconds=4)
        )
        ahead = await forecast(db, POOL, count=COUNT, from_at=wanted_at)
        print(f"forecast: from {ahead.first_at:%T} to {ahead.last_at:%T.%f}")
        await take_slots(db, wanted_at)
        await give_one_back(db, wanted_at)


async def take_slots(db: Connection, wanted_at: datetime) -> None:
    """Book the burst; the same request again has the same answer, so a repeat is harmless."""
    requests = [SlotRequest(f"statement-{number}", wanted_at) for number in range(COUNT)]
    slots = [each.slot for each in await assign_many(db, POOL, requests) if each.slot]
    again = await assign(db, POOL, requests[500])
    print(f"booked: from {slots[0].scheduled_at:%T} to {slots[-1].scheduled_at:%T.%f}")
    fullest = max(Counter(slot.window_at for slot in slots).values())
    print(f"the fullest window has {fullest}")
    print(f"asked again, the answer is the same: {again == slots[500]}")


async def give_one_back(db: Connection, wanted_at: datetime) -> None:
    """Cancel one slot; whoever comes next gets the earliest that is free."""
    await cancel(db, "statement-7", who="example")
    slot = await assign(db, POOL, SlotRequest("late-comer", wanted_at))
    print(f"late-comer has the slot of statement-7: {slot.scheduled_at:%T.%f}")


if __name__ == "__main__":
    asyncio.run(main())
