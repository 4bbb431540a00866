"""In the lanes of webhooks only events make items; all other verbs are for everyone."""

import pytest

from penstock.base.errors import InvalidInput
from penstock.domains.webhooks.domain import LANE, ORDERED_LANE, REPLAY_LANE
from penstock.kernel.errors import LaneIsOwned
from penstock.kernel.inspect import list_items
from penstock.kernel.lane import create_lane, list_lanes, set_lane
from penstock.kernel.operate import cancel, hold, release
from tests.domains.webhooks.scene import Tenant
from tests.receiver import receiving


async def test_every_lane_belongs_to_the_domain(own: Tenant) -> None:
    lanes = await list_lanes(own.penstock.pool)

    assert [lane.name for lane in lanes if lane.owner == "webhooks"] == [
        "penstock.webhooks",
        "penstock.webhooks.ordered",
        "penstock.webhooks.replay",
    ]


@pytest.mark.parametrize(
    ("lane", "pointer"),
    [(LANE, "POST /events"), (ORDERED_LANE, "POST /events"), (REPLAY_LANE, "POST /replays")],
)
async def test_nobody_else_enqueues_in_a_lane_of_webhooks(
    own: Tenant, lane: str, pointer: str
) -> None:
    """A delivery without its event could not be sent."""
    with pytest.raises(LaneIsOwned, match=pointer):
        await own.penstock.enqueue(lane, {"event": 1, "subscription": 1, "replay": 1})


@pytest.mark.parametrize("lane", [LANE, ORDERED_LANE, REPLAY_LANE])
async def test_the_ordering_of_a_lane_of_webhooks_cannot_be_changed(own: Tenant, lane: str) -> None:
    ordering = "none" if lane == ORDERED_LANE else "per_key"
    async with own.penstock.pool.acquire() as db:
        with pytest.raises(LaneIsOwned, match="a change of ordering"):
            await set_lane(db, lane, who="ops", ordering=ordering)


async def test_operators_decide_about_deliveries_as_about_any_item(own: Tenant) -> None:
    async with receiving() as receiver, own.penstock.pool.acquire() as db:
        await own.subscribe(receiver.url)
        await own.send()
        (item,) = (await list_items(db, LANE)).items

        await hold(db, item.id, who="ops", reason="wait")
        await release(db, item.id, who="ops", reason="go on")
        await cancel(db, item.id, who="ops")
        with pytest.raises(InvalidInput, match="must not begin"):
            await create_lane(db, "penstock.webhooks.mine", who="ops")
        await set_lane(db, LANE, who="ops", rate=5, on_lost="hold")
