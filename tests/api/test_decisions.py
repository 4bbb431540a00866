"""Decisions of operators over REST: about one item, and about many with a count beforehand."""

from typing import Any

import pytest
from httpx import AsyncClient

from penstock import Dead, Hold, Penstock
from penstock.kernel.lane import create_lane
from tests.api.scene import accept, count_items, end_all, problem

WHY = {"reason": "asked the bank"}


async def test_a_waiting_item_is_held_and_released(admin: AsyncClient) -> None:
    item_id = await accept(admin)

    held = await admin.post(f"/items/{item_id}/hold", json=WHY)
    released = await admin.post(f"/items/{item_id}/release", json=WHY)

    assert (held.json()["state"], held.json()["reason"]) == ("held", "asked the bank")
    assert released.json()["state"] == "ready"


async def test_a_held_item_is_resolved_as_done_with_a_result(
    admin: AsyncClient, penstock: Penstock
) -> None:
    """What the person found out stands with the item, and who it was in the audit."""
    item_id = await accept(admin)
    await end_all(penstock, Hold("no answer"))

    resolved = await admin.post(
        f"/items/{item_id}/resolve", json=WHY | {"outcome": "done", "result": {"ref": "b-7"}}
    )

    assert resolved.json()["state"] == "done"
    history = (await admin.get(f"/items/{item_id}")).json()["history"]
    assert [attempt["outcome"] for attempt in history] == ["hold", "done"]
    assert history[-1]["result"] == {"ref": "b-7"}
    (entry, *_) = (await admin.get("/audit", params={"subject": str(item_id)})).json()["items"]
    assert entry["action"] == "item.resolved"
    assert entry["before"] == {"state": "held", "reason": "no answer"}
    assert entry["after"] == {
        "outcome": "done", "reason": "asked the bank", "result": {"ref": "b-7"},
    }  # fmt: skip


async def test_a_held_item_is_resolved_as_dead(admin: AsyncClient, penstock: Penstock) -> None:
    item_id = await accept(admin)
    await end_all(penstock, Hold("no answer"))

    resolved = await admin.post(f"/items/{item_id}/resolve", json=WHY | {"outcome": "dead"})

    assert (resolved.json()["state"], resolved.json()["reason"]) == ("dead", "asked the bank")


async def test_the_head_of_a_key_is_skipped(admin: AsyncClient, penstock: Penstock) -> None:
    async with penstock.pool.acquire() as db:
        await create_lane(db, "line", who="test", ordering="per_key")
    head, follower = [
        (await admin.post("/items", json={"lane": "line", "payload": n, "order_key": "k"})).json()
        for n in range(2)
    ]

    skipped = await admin.post(f"/items/{head['id']}/skip", json=WHY)

    assert skipped.json()["state"] == "dead"
    assert (await admin.get(f"/items/{follower['id']}")).json()["state"] == "ready"


@pytest.mark.parametrize("verb", ["hold", "release", "resolve", "skip"])
async def test_a_decision_on_an_item_in_another_state_is_a_conflict(
    admin: AsyncClient, penstock: Penstock, verb: str
) -> None:
    item_id = await accept(admin)
    await end_all(penstock, Dead("no"))
    body: dict[str, Any] = WHY | ({"outcome": "done"} if verb == "resolve" else {})

    response = await admin.post(f"/items/{item_id}/{verb}", json=body)

    assert problem(response, 409, "state-conflict")["state"] == "dead"


@pytest.mark.parametrize("verb", ["hold", "release", "resolve", "skip"])
async def test_a_decision_needs_a_reason(shared_admin: AsyncClient, verb: str) -> None:
    response = await shared_admin.post(f"/items/17/{verb}", json={"outcome": "done"})

    problem(response, 400, "invalid-input")


async def hold_some(admin: AsyncClient, penstock: Penstock, *reasons: str) -> None:
    """Have one item held for each reason."""
    for reason in reasons:
        await accept(admin)
        await end_all(penstock, Hold(reason))


async def test_many_held_items_are_counted_and_then_resolved(
    admin: AsyncClient, penstock: Penstock
) -> None:
    """After an outage of the bank, hundreds are decided about at once, and nothing else is."""
    await hold_some(admin, penstock, "lost", "lost", "other")
    chosen = WHY | {"lane": "work", "with_reason": "lost", "outcome": "done"}

    counted = await admin.post("/items/resolve", json=chosen | {"dry_run": True})
    before = await count_items(penstock)
    resolved = await admin.post("/items/resolve", json=chosen)

    assert counted.json() == {"matched": 2, "changed": 0, "unchanged": 0, "next": None}
    assert before.held == 3
    assert resolved.json() == {"matched": 2, "changed": 2, "unchanged": 0, "next": None}
    after = await count_items(penstock)
    assert (after.held, after.done) == (1, 2)
    assert after.is_even


async def test_many_waiting_items_are_held_and_released(
    admin: AsyncClient, penstock: Penstock
) -> None:
    for _ in range(3):
        await accept(admin)

    held = await admin.post("/items/hold", json=WHY | {"lane": "work"})
    counted = await count_items(penstock)
    released = await admin.post("/items/release", json=WHY | {"lane": "work"})

    assert held.json()["changed"] == 3
    assert counted.held == 3
    assert released.json()["changed"] == 3


async def test_dead_items_that_block_no_key_are_left_by_skip(
    admin: AsyncClient, penstock: Penstock
) -> None:
    await accept(admin)
    await end_all(penstock, Dead("no"))

    chosen = WHY | {"lane": "work", "state": "dead"}
    counted = await admin.post("/items/skip", json=chosen | {"dry_run": True})
    skipped = await admin.post("/items/skip", json=chosen)

    assert counted.json()["matched"] == 0
    assert skipped.json() == {"matched": 0, "changed": 0, "unchanged": 0, "next": None}


@pytest.mark.parametrize("state", ["waiting", "held", "dead"])
async def test_a_dry_run_of_skip_counts_what_skip_changes(
    admin: AsyncClient, penstock: Penstock, state: str
) -> None:
    """One head has a key and a follower; the other item of the lane has no key."""
    async with penstock.pool.acquire() as db:
        await create_lane(db, "line", who="test", ordering="per_key")
    for order_key in ("k", "k", None):
        new = {"lane": "line", "payload": 1, "order_key": order_key}
        assert (await admin.post("/items", json=new)).status_code == 202
    if state != "waiting":
        await end_all(penstock, Hold("?") if state == "held" else Dead("no"), lane="line")
    chosen = WHY | {"lane": "line", "state": state}

    counted = await admin.post("/items/skip", json=chosen | {"dry_run": True})
    skipped = await admin.post("/items/skip", json=chosen)

    assert counted.json()["matched"] == 1
    assert skipped.json() == {"matched": 1, "changed": 1, "unchanged": 0, "next": None}


@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_dry_run_refuses_what_the_decision_refuses(
    admin: AsyncClient, penstock: Penstock, *, dry_run: bool
) -> None:
    await accept(admin)
    await end_all(penstock, Hold("?"))
    chosen = {"lane": "work", "outcome": "dead", "dry_run": dry_run}

    with_result = await admin.post("/items/resolve", json=WHY | chosen | {"result": 1})
    blank = await admin.post("/items/resolve", json=chosen | {"reason": " "})

    assert problem(with_result, 400, "invalid-input")["field"] == "result"
    assert problem(blank, 400, "invalid-input")["field"] == "reason"


async def test_a_decision_on_many_of_an_unknown_lane_is_refused(shared_admin: AsyncClient) -> None:
    response = await shared_admin.post("/items/hold", json=WHY | {"lane": "nowhere"})

    problem(response, 404, "unknown-lane")


@pytest.mark.parametrize("verb", ["cancel", "retry", "reschedule"])
async def test_other_verbs_take_a_reason_for_the_audit(
    admin: AsyncClient, penstock: Penstock, verb: str
) -> None:
    """A reason that is answered with 200 and dropped is missed months later."""
    item_id = await accept(admin)
    if verb == "retry":
        await end_all(penstock, Dead("no"))
    body = WHY | ({"due_at": "2030-01-31T16:00:00Z"} if verb == "reschedule" else {})

    response = await admin.post(f"/items/{item_id}/{verb}", json=body)

    assert response.status_code == 200
    (entry, *_) = (await admin.get("/audit", params={"subject": str(item_id)})).json()["items"]
    assert entry["after"]["reason"] == "asked the bank"


@pytest.mark.parametrize("verb", ["cancel", "retry"])
async def test_an_optional_body_is_checked_as_any_other(
    shared_admin: AsyncClient, verb: str
) -> None:
    path = f"/items/17/{verb}"

    unknown = await shared_admin.post(path, json={"because": "?"})
    blank = await shared_admin.post(path, json={"reason": " "})
    form = await shared_admin.post(path, data={"reason": "?"})
    absent = await shared_admin.post(path)

    problem(unknown, 400, "invalid-input")
    problem(blank, 400, "invalid-input")
    problem(form, 415, "unsupported-media-type")
    problem(absent, 404, "unknown-item")
