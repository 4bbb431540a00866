"""Owned lanes over REST: what the domain guards is answered with 403 and what to use instead."""

from typing import Any

import pytest
from httpx import AsyncClient, Response

from penstock import Penstock
from penstock.kernel.enqueue import enqueue
from penstock.kernel.item import ItemId, NewItem
from penstock.kernel.lane import create_lane
from penstock.kernel.operate import hold
from tests.api.scene import problem

LANE = "rails"
OWNER = "rails"
VERBS = ("retry", "cancel", "reschedule", "replay", "resolve", "hold", "release", "skip")
GUARDS = {verb: f"use rails {verb}" for verb in ("enqueue", *VERBS, "set:ordering")}
WHY = {"reason": "why not"}

REQUESTS: dict[str, tuple[str, Any]] = {
    "enqueue": ("/items", {"lane": LANE, "payload": 1}),
    "enqueue many": ("/items/batch", [{"lane": LANE, "payload": 1}]),
    "retry": ("/items/{id}/retry", None),
    "cancel": ("/items/{id}/cancel", None),
    "reschedule": ("/items/{id}/reschedule", {"due_at": "2031-01-01T00:00:00Z"}),
    "hold": ("/items/{id}/hold", WHY),
    "release": ("/items/{id}/release", WHY),
    "resolve": ("/items/{id}/resolve", WHY | {"outcome": "done"}),
    "skip": ("/items/{id}/skip", WHY),
    "replay": ("/dead/replay", {"lane": LANE}),
    "release many": ("/items/release", WHY | {"lane": LANE}),
    "resolve many": ("/items/resolve", WHY | {"lane": LANE, "outcome": "dead"}),
    "skip many": ("/items/skip", WHY | {"lane": LANE, "state": "held"}),
}


@pytest.fixture
async def held(penstock: Penstock) -> ItemId:
    """A held item of a lane whose domain guards every verb."""
    async with penstock.pool.acquire() as db:
        await create_lane(db, LANE, who="test", owner=OWNER, guards=GUARDS, ordering="per_key")
        item = NewItem(payload=1, order_key="k")
        item_id = (await enqueue(db, LANE, item, owner=OWNER)).id
        await hold(db, item_id, who="test", reason="unknown", owner=OWNER)
    return item_id


@pytest.mark.parametrize("verb", REQUESTS)
async def test_a_guarded_verb_is_refused_with_the_verb_of_the_domain(
    admin: AsyncClient, held: ItemId, verb: str
) -> None:
    path, body = REQUESTS[verb]
    audited = (await admin.get("/audit")).json()

    response = await admin.post(path.format(id=held), json=body)

    is_refused(response, verb.removesuffix(" many"))
    assert (await admin.get(f"/items/{held}")).json()["state"] == "held"
    assert (await admin.get("/audit")).json() == audited


def is_refused(response: Response, verb: str) -> None:
    refused = problem(response, 403, "lane-is-owned")
    assert (refused["lane"], refused["owner"]) == (LANE, OWNER)
    assert (refused["verb"], refused["pointer"]) == (verb, f"use rails {verb}")


@pytest.mark.usefixtures("held")
async def test_a_guarded_field_is_refused_and_the_others_are_not(admin: AsyncClient) -> None:
    before = (await admin.get(f"/lanes/{LANE}")).json()

    for change in (admin.put, admin.patch):
        is_refused(
            await change(f"/lanes/{LANE}", json={"rate": 5, "ordering": "none"}), "set:ordering"
        )
    unchanged = (await admin.get(f"/lanes/{LANE}")).json()
    response = await admin.put(f"/lanes/{LANE}", json={"rate": 5, "ordering": "per_key"})

    assert unchanged == before
    assert (response.status_code, response.json()["rate"]) == (200, 5)


@pytest.mark.usefixtures("held")
async def test_a_lane_is_shown_with_its_owner_and_guards(admin: AsyncClient) -> None:
    owned = (await admin.get(f"/lanes/{LANE}")).json()
    lanes = {lane["name"]: lane for lane in (await admin.get("/lanes")).json()["lanes"]}

    assert (owned["owner"], owned["guards"]) == (OWNER, GUARDS)
    assert lanes[LANE] == owned
    assert (lanes["work"]["owner"], lanes["work"]["guards"]) == (None, {})


async def test_a_built_in_lane_is_changed_by_putting_it_and_no_other_is_made(
    admin: AsyncClient,
) -> None:
    changed = await admin.put("/lanes/penstock.webhooks", json={"rate": 5})
    refused = await admin.put("/lanes/penstock.mine", json={"rate": 5})

    assert (changed.status_code, changed.json()["owner"]) == (200, "webhooks")
    assert problem(refused, 400, "invalid-input")["field"] == "name"
