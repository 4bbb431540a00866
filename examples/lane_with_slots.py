"""A lane that takes its due instants from a slot pool: a burst for one instant is spread out."""

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


# With a pool that is there already, `slot_pool="payouts"` can stand here too.
@app.handler(LANE)
async def pay(item: Item[str]) -> None:
    """Runs when the item's slot has come, and not before."""
    assert datetime.now(UTC) >= item.due_at
    print("paid", item.payload)
    paid.append(item.payload)
    if len(paid) == 5:
        all_paid.set()


async def main() -> None:
    """Enqueue five payouts for one instant, cancel one of them, and let another take its slot."""
    async with app:
        async with app.pool.acquire() as db:
            # Two a second, however many want the same instant.
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

            # The slot goes back in the transaction that cancels the item.
            await cancel(db, items[1].id, who="example")
            sixth = await app.enqueue(LANE, "payout-6", due_at=due_at)
            print(f"payout-6 is due {await delay(db, sixth, due_at)} s later, instead of payout-2")
        await app.run_worker(all_paid)


async def delay(db: Connection, accepted: Accepted, due_at: datetime) -> float:
    """Return how many seconds after the instant that it asked for an item is due."""
    item = await read_item(db, accepted.id)
    assert item is not None
    assert item.due_at is not None
    return (item.due_at - due_at).total_seconds()


if __name__ == "__main__":
    asyncio.run(main())
