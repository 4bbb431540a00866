"""A lane may name a slot pool: its items are due in slots of the pool, and free them."""

from datetime import timedelta
from typing import Any

import pytest

from penstock.base.clock import FakeClock
from penstock.base.errors import InvalidInput
from penstock.calendar.calendar import Calendar
from penstock.domains.slots.config import set_config
from penstock.domains.slots.inspect import read_slot
from penstock.domains.slots.reflow import reflow
from penstock.kernel.enqueue import enqueue, enqueue_many
from penstock.kernel.errors import SlotRefused
from penstock.kernel.inspect import read_item
from penstock.kernel.item import Accepted, NewItem
from penstock.kernel.lane import create_lane, set_lane
from penstock.kernel.operate import cancel, hold, release, reschedule
from penstock.postgres.pool import Connection, Pool

SECOND = timedelta(seconds=1)


async def slotted_lane(db: Connection, **policy: Any) -> None:
    """Create a pool of one slot a second, and a lane with that pool."""
    await set_config(
        db,
        "payouts",
        who="test",
        max_per_window=1,
        window_size=SECOND,
        horizon=timedelta(days=3660),  # The tests' clock is some years ahead.
    )
    await create_lane(db, "payouts", who="test", slot_pool="payouts", **policy)


async def due_offsets(db: Connection, accepted: list[Accepted], clock: FakeClock) -> list[float]:
    """Return how many seconds after the clock's time each item is due."""
    items = [await read_item(db, each.id) for each in accepted]
    return [(item.due_at - clock.now()).total_seconds() for item in items if item and item.due_at]


async def test_items_for_one_instant_are_due_in_slots(db: Pool, clock: FakeClock) -> None:
    """A thousand payments for 16:00 must not all be due at 16:00."""
    async with db.acquire() as connection:
        await slotted_lane(connection)

        accepted = [
            await enqueue(connection, "payouts", NewItem(payload=n, due_at=clock.now()))
            for n in range(3)
        ]

        assert await due_offsets(connection, accepted, clock) == [0, 1, 2]


async def test_bulk_enqueue_takes_slots_too(db: Pool, clock: FakeClock) -> None:
    async with db.acquire() as connection:
        await slotted_lane(connection)
        items = [NewItem(payload=n, key=str(n), due_at=clock.now()) for n in range(50)]

        accepted = await enqueue_many(connection, "payouts", items)

        assert await due_offsets(connection, accepted, clock) == list(range(50))


async def test_a_repeated_key_takes_no_second_slot(db: Pool, clock: FakeClock) -> None:
    """A repeated request must not use capacity."""
    async with db.acquire() as connection:
        await slotted_lane(connection)
        item = NewItem(payload=1, key="pay-1", due_at=clock.now())

        first = await enqueue(connection, "payouts", item)
        again = await enqueue(connection, "payouts", item)

        assert again.id == first.id
        assert await slots_taken(connection) == 1


async def test_a_rolled_back_enqueue_leaves_its_slot_free(db: Pool, clock: FakeClock) -> None:
    """The item and its slot are one transaction."""
    item = NewItem(payload=1, due_at=clock.now())
    async with db.acquire() as connection:
        await slotted_lane(connection)
        transaction = connection.transaction()
        await transaction.start()
        await enqueue(connection, "payouts", item)
        await transaction.rollback()

        accepted = await enqueue(connection, "payouts", item)

        assert await due_offsets(connection, [accepted], clock) == [0]


async def test_a_cancelled_item_frees_its_slot_for_the_next(db: Pool, clock: FakeClock) -> None:
    async with db.acquire() as connection:
        await slotted_lane(connection)
        first = await enqueue(connection, "payouts", NewItem(payload=1, due_at=clock.now()))
        await enqueue(connection, "payouts", NewItem(payload=2, due_at=clock.now()))

        await cancel(connection, first.id, who="test")
        third = await enqueue(connection, "payouts", NewItem(payload=3, due_at=clock.now()))

        assert await due_offsets(connection, [third], clock) == [0]


async def test_an_ordered_lane_keeps_its_order_in_slots(db: Pool, clock: FakeClock) -> None:
    """A parked follower has a slot of its own, too."""
    async with db.acquire() as connection:
        await slotted_lane(connection, ordering="per_key")
        items = [NewItem(payload=n, order_key="a", due_at=clock.now()) for n in range(3)]

        accepted = await enqueue_many(connection, "payouts", items)

        assert await due_offsets(connection, accepted, clock) == [0, 1, 2]


async def test_a_reflow_moves_the_due_instants_of_items(db: Pool, clock: FakeClock) -> None:
    """An item whose slot has moved must not be due at the old instant."""
    async with db.acquire() as connection:
        await slotted_lane(connection)
        items = [NewItem(payload=n, due_at=clock.now() + 60 * SECOND) for n in range(4)]
        accepted = await enqueue_many(connection, "payouts", items)
        await halve_the_rate(connection, clock)

        done = await reflow(
            connection,
            "payouts",
            freeze_until=clock.now(),
            who="test",
            is_dry_run=False,
            now=clock.now(),
        )

        assert done.moved == 3
        assert await due_offsets(connection, accepted, clock) == [60, 62, 64, 66]
        slot = await read_slot(connection, f"item:{accepted[3].id}")
        assert slot.scheduled_at == clock.now() + 66 * SECOND


async def test_a_reflow_does_not_move_a_rescheduled_item(db: Pool, clock: FakeClock) -> None:
    """A due instant set by a person takes precedence."""
    by_hand = clock.now() + 3600 * SECOND
    async with db.acquire() as connection:
        await slotted_lane(connection)
        items = [NewItem(payload=n, due_at=clock.now() + 60 * SECOND) for n in range(2)]
        accepted = await enqueue_many(connection, "payouts", items)
        await reschedule(connection, accepted[1].id, by_hand, who="test")
        await halve_the_rate(connection, clock)

        await reflow(
            connection,
            "payouts",
            freeze_until=clock.now(),
            who="test",
            is_dry_run=False,
            now=clock.now(),
        )

        assert await due_offsets(connection, accepted, clock) == [60, 3600]


async def test_an_item_that_gets_no_slot_is_not_accepted(db: Pool, clock: FakeClock) -> None:
    """The policy reject must reject the whole item after the cut-off."""
    calendar = Calendar(time_zone="UTC", cut_off="11:00", cut_off_policy="reject")
    async with db.acquire() as connection:
        await set_config(
            connection,
            "strict",
            who="test",
            max_per_window=1,
            window_size=SECOND,
            horizon=timedelta(days=3660),
            calendar=calendar,
        )
        await create_lane(connection, "strict", who="test", slot_pool="strict")

        with pytest.raises(SlotRefused) as refused:
            await enqueue(connection, "strict", NewItem(payload=1, due_at=clock.now()))

        assert (refused.value.pool, refused.value.reason) == ("strict", "after_cut_off")
        assert await slots_taken(connection) == 0


async def test_a_lane_cannot_name_an_unknown_pool(db: Pool) -> None:
    """It would reject every item."""
    async with db.acquire() as connection:
        await create_lane(connection, "work", who="test")

        with pytest.raises(InvalidInput, match="slot_pool"):
            await set_lane(connection, "work", who="test", slot_pool="nowhere")


async def test_items_keep_their_slots_when_the_lane_loses_its_pool(
    db: Pool, clock: FakeClock
) -> None:
    async with db.acquire() as connection:
        await slotted_lane(connection)
        items = [NewItem(payload=n, due_at=clock.now()) for n in range(2)]
        before = await enqueue_many(connection, "payouts", items)
        await set_lane(connection, "payouts", who="test", slot_pool=None)

        after = await enqueue_many(connection, "payouts", items)

        assert await due_offsets(connection, [*before, *after], clock) == [0, 1, 0, 0]
        await cancel(connection, before[1].id, who="test")
        assert await slots_taken(connection) == 1


async def halve_the_rate(db: Connection, clock: FakeClock) -> None:
    """Lower the capacity to one slot in two seconds."""
    await set_config(
        db, "payouts", who="test", max_per_window=1, window_size=2 * SECOND, now=clock.now()
    )


async def slots_taken(db: Connection) -> int:
    """Return how many slots there are."""
    return int(await db.fetchval("SELECT count(*) FROM penstock.slot"))


async def test_released_items_keep_their_slots(db: Pool, clock: FakeClock) -> None:
    """Five payments with a slot each must not leave at one instant after a look at them."""
    async with db.acquire() as connection:
        await slotted_lane(connection)
        later = clock.now() + timedelta(hours=6)
        items = [NewItem(payload=n, due_at=later) for n in range(5)]
        accepted = await enqueue_many(connection, "payouts", items)
        before = await due_offsets(connection, accepted, clock)

        for each in accepted:
            await hold(connection, each.id, who="ann", reason="a doubt", now=clock.now())
        for each in accepted:
            await release(connection, each.id, who="ann", reason="no doubt", now=clock.now())

        assert await due_offsets(connection, accepted, clock) == before
        assert len(set(before)) == 5


async def test_a_reflow_moves_held_items_with_their_slots(db: Pool, clock: FakeClock) -> None:
    """Released later, such an item is due when its slot is."""
    async with db.acquire() as connection:
        await slotted_lane(connection)
        due_at = clock.now() + timedelta(hours=1)
        items = [NewItem(payload=n, due_at=due_at) for n in range(3)]
        first, _, last = await enqueue_many(connection, "payouts", items)
        await hold(connection, last.id, who="ann", reason="a doubt", now=clock.now())
        await cancel(connection, first.id, who="ann", now=clock.now())

        await reflow(
            connection,
            "payouts",
            freeze_until=clock.now(),
            who="test",
            is_dry_run=False,
            now=clock.now(),
        )
        await release(connection, last.id, who="ann", reason="no doubt", now=clock.now())

        slot = await read_slot(connection, f"item:{last.id}")
        assert await due_offsets(connection, [last], clock) == [3601]
        assert slot.scheduled_at == due_at + SECOND
