"""A lane that takes its due instants from a slot pool, which spreads a burst for one instant."""

import asyncio
from datetime import UTC, datetime, timedelta

from penstock import Item, Penstock
from penstock.domains.slots.config import set_config
from penstock.kernel.inspect import read_item
from penstock.kernel.item import Accepted
from penstock.kernel.lane import set_lane
from penstock.kernel.operate import cancel
from penstock.postgres.pool import Connection

LANE = POOL = "payouts"

app = Penstock()
all_paid = asyncio.Event()
paid: list[str] = []


# If the pool already exists, `slot_pool="payouts"` can be an argument of the handler.
@app.handler(LANE)
async def pay(item: Item[str]) -> None:
    """Runs at the item's slot, not before."""
    assert datetime.now(UTC) >= item.due_at
    print("paid", item.payload)
    paid.append(item.payload)
    if len(paid) == 5:
        all_paid.set()


async def main() -> None:
    """Enqueue five payouts for one instant, cancel one, and enqueue another that gets its slot."""
    async with app:
        async with app.pool.acquire() as db:
            # At most two per second, for any number of items with the same due instant.
            await set_config(
                db, POOL, who="example", max_per_window=2, window_size=timedelta(seconds=1)
            )
            await set_lane(db, LANE, who="example", slot_pool=POOL)
            due_at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=3)
            items = [
                await app.enqueue(LANE, f"payout-{number}", due_at=due_at) for number in range(1, 6)
            ]
            for number, accepted in enumerate(items, start=1):
                print(f"payout-{number} is due {await delay(db, accepted, due_at)} s later")

            # The transaction that cancels the item also cancels its slot.
            await cancel(db, items[1].id, who="example")
            sixth = await app.enqueue(LANE, "payout-6", due_at=due_at)
            print(f"payout-6 is due {await delay(db, sixth, due_at)} s later, instead of payout-2")
        await app.run_worker(all_paid)


async def delay(db: Connection, accepted: Accepted, due_at: datetime) -> float:
    """Return how many seconds after its requested instant an item is due."""
    item = await read_item(db, accepted.id)
    assert item is not None
    assert item.due_at is not None
    return (item.due_at - due_at).total_seconds()


if __name__ == "__main__":
    asyncio.run(main())
