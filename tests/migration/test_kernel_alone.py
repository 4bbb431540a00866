"""The kernel works without the slots, whose functions it only looks up when a lane names a pool."""

import pytest

from penstock.base.errors import InvalidInput
from penstock.kernel.enqueue import enqueue
from penstock.kernel.item import NewItem
from penstock.kernel.lane import Lane, create_lane, set_lane
from penstock.kernel.operate import cancel
from penstock.postgres.migrate import migrate
from penstock.postgres.pool import Connection
from tests.kernel.scene import state_of


@pytest.fixture
async def lane(connection: Connection) -> Lane:
    await migrate(connection, ["penstock.kernel"])
    return await create_lane(connection, "mail", who="test")


async def test_items_are_accepted_known_again_and_cancelled(
    connection: Connection, lane: Lane
) -> None:
    item = NewItem(payload={"to": "a"}, key="a")
    first = await enqueue(connection, lane.name, item)
    second = await enqueue(connection, lane.name, item)

    await cancel(connection, first.id, who="test")

    assert (second.id, second.is_new) == (first.id, False)
    assert await state_of(connection, first.id) == "cancelled"


async def test_a_lane_cannot_name_a_slot_pool(connection: Connection, lane: Lane) -> None:
    """It is refused where it is set, and not at the first item."""
    with pytest.raises(InvalidInput, match=r"slot_pool.*the slots are not installed"):
        await set_lane(connection, lane.name, who="test", slot_pool="default")
