"""The lane of an item type belongs to payments: others are refused what would leave a payment."""

from importlib.resources import files
from typing import Any, LiteralString, cast

import asyncpg
import pytest

from penstock.contract import OwnedLane
from penstock.domains.payments.lanes import GUARDS, LANE, OWNER
from penstock.kernel.lane import Lane, create_lane, read_lane
from tests.domains.payments.scene import Scene

PAYROLL: LiteralString = "INSERT INTO penstock.exec_rate_config (item_type) VALUES ('PAYROLL')"
ALL_GUARDS = OwnedLane(name=LANE, guards=GUARDS).all_guards

# What the function did before lanes of item types had an owner, in one transaction.
MADE_BEFORE: tuple[LiteralString, ...] = (
    (
        "INSERT INTO penstock.payment_item_type"
        " (item_type, lane, exec_workflow_type, exec_task_queue)"
        " VALUES ('PAYROLL', 'payroll', 'PaymentExecWorkflow', 'payment-exec-task-queue')"
    ),
    "INSERT INTO penstock.lane (name) VALUES ('payroll')",
    (
        "INSERT INTO penstock.audit (audited_at, who, action, subject)"
        " VALUES (now(), 'sql:ops', 'lane.created', 'payroll')"
    ),
)
OWN_LANES = "0006_own_item_type_lanes.sql"


async def lane_of(scene: Scene, name: str) -> Lane:
    async with scene.app.pool.acquire() as db:
        return await read_lane(db, name)


async def scheduled(scene: Scene) -> int:
    """Return the item of a payment in the lane of another item type."""
    await scene.app.pool.execute(PAYROLL)
    assert (await scene.post("p-1", item_type="PAYROLL")).status_code == 202
    return cast("int", (await scene.rows())[0]["item_id"])


async def test_the_lane_of_an_item_type_has_the_guards_of_payments(scene: Scene) -> None:
    await scene.app.pool.execute(PAYROLL)

    lane, payment = await lane_of(scene, "payroll"), await lane_of(scene, LANE)

    assert (lane.owner, lane.guards) == (OWNER, ALL_GUARDS)
    assert (payment.owner, payment.guards) == (OWNER, ALL_GUARDS)


async def test_an_item_of_a_payment_is_not_cancelled_alone(scene: Scene) -> None:
    """Its payment would be scheduled for ever."""
    item_id = await scheduled(scene)

    refused = await scene.client.post(f"/items/{item_id}/cancel")
    cancelled = await scene.client.post("/payments/p-1/cancel")

    assert (refused.status_code, refused.json()["verb"]) == (403, "cancel")
    assert "penstock payment cancel" in refused.json()["detail"]
    assert cancelled.status_code == 200
    assert (await scene.rows())[0]["status"] == "CANCELLED"


@pytest.mark.parametrize("item_type", ["PAYMENT", "PAYROLL"])
async def test_a_held_item_of_a_payment_is_not_resolved(scene: Scene, *, item_type: str) -> None:
    """Its payment would be scheduled for ever, with an item that is done."""
    await scene.app.pool.execute(PAYROLL)
    await scene.post("p-1", item_type=item_type)
    item = f"/items/{(await scene.rows())[0]['item_id']}"
    held = await scene.client.post(f"{item}/hold", json={"reason": "a question"})

    refused = await scene.client.post(
        f"{item}/resolve", json={"outcome": "done", "reason": "paid by hand"}
    )

    assert held.status_code == 200
    assert (refused.status_code, refused.json()["verb"]) == (403, "resolve")
    assert "release the item" in refused.json()["detail"]


async def test_nobody_else_enqueues_into_the_lane_of_an_item_type(scene: Scene) -> None:
    """Such an item would execute a payment before its time."""
    await scheduled(scene)

    refused = await scene.client.post(
        "/items", json={"lane": "payroll", "payload": {"payment_id": "p-1"}}
    )

    assert refused.status_code == 403
    assert "POST /payments" in refused.json()["detail"]
    assert [key for key, _ in await scene.items()] == ["p-1"]


async def test_items_of_a_type_of_ones_own_are_enqueued_with_the_function(scene: Scene) -> None:
    await scene.app.pool.execute(PAYROLL)

    await scene.app.pool.execute(
        "SELECT penstock.save_context_and_enqueue("
        "'PAYROLL', ARRAY['i-1'], ARRAY['{}'::jsonb], ARRAY[1], ARRAY[now()])"
    )

    assert [key for key, _ in await scene.items()] == ["i-1"]


@pytest.mark.parametrize(
    ("owner", "whose"), [(None, "an application"), ("wages", "the domain 'wages'")]
)
async def test_an_item_type_does_not_take_over_a_lane(
    scene: Scene, *, owner: str | None, whose: str
) -> None:
    """Workers would execute the items of an application as payments."""
    async with scene.app.pool.acquire() as db:
        before = await create_lane(db, "payroll", who="test", owner=owner)

    with pytest.raises(asyncpg.PostgresError) as refused:
        await scene.app.pool.execute(PAYROLL)

    error: Any = refused.value
    assert error.sqlstate == "PS403"
    assert error.message == (
        f"item type 'PAYROLL' needs the lane 'payroll', which belongs to {whose}"
    )
    assert await lane_of(scene, "payroll") == before
    assert await scene.app.pool.fetchval("SELECT count(*) FROM penstock.payment_item_type") == 1


async def test_lanes_that_were_made_before_get_owner_and_guards(scene: Scene) -> None:
    async with scene.app.pool.acquire() as db, db.transaction():
        for statement in MADE_BEFORE:
            await db.execute(statement)

    await own_lanes(scene)
    await own_lanes(scene)  # A repeat changes nothing.

    lane = await lane_of(scene, "payroll")
    assert (lane.owner, lane.guards) == (OWNER, ALL_GUARDS)
    audited = await scene.app.pool.fetchval(
        "SELECT count(*) FROM penstock.audit WHERE subject = 'payroll' AND action = 'lane.changed'"
    )
    assert audited == 1


async def test_a_lane_that_an_application_had_before_its_item_type_stays(scene: Scene) -> None:
    """The application enqueues into it."""
    async with scene.app.pool.acquire() as db:
        await create_lane(db, "payroll", who="app")
        await db.execute(MADE_BEFORE[0])

    await own_lanes(scene)

    assert (await lane_of(scene, "payroll")).owner is None


async def own_lanes(scene: Scene) -> None:
    text = (files("penstock.domains.payments") / "migrations" / OWN_LANES).read_text()
    await scene.app.pool.execute(cast("LiteralString", text))
