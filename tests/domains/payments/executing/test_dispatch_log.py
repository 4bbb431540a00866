"""The audit log of dispatches, and the metrics of the document: both move with what happens."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString, cast

import asyncpg
import pytest

from penstock.domains.payments.dispatch_log import DispatchLog
from penstock.domains.payments.lanes import LANE
from penstock.domains.payments.loader import PaymentRef
from penstock.kernel.item import DONE, ItemId, SettledAttempt
from penstock.kernel.retain import open_days, retain
from tests.domains.payments.executing.scene import Scene
from tests.fault.waiting import until

NO_PACING = {"dispatch_interval": timedelta(0), "jitter_window": timedelta(0)}


@pytest.mark.covers("A49")
async def test_each_dispatch_is_logged_with_its_batch(scene: Scene) -> None:
    await scene.schedule("p-1", "p-2")

    await scene.run_payments()

    rows = await scene.log()
    assert [(row["payment_id"], row["action"]) for row in rows] == [
        ("p-1", "DISPATCHED"), ("p-2", "DISPATCHED"), (None, "BATCH_COMPLETE")
    ]  # fmt: skip
    assert {(row["status_before"], row["status_after"]) for row in rows[:2]} == {
        ("CLAIMED", "DISPATCHED")
    }
    assert {row["item_type"] for row in rows} == {"PAYMENT"}
    (batch_id,) = {row["batch_id"] for row in rows}
    assert batch_id.startswith("BATCH-")


@pytest.mark.covers("A29")
async def test_a_complete_batch_has_one_row_with_its_counts(scene: Scene) -> None:
    await scene.schedule("p-1", "p-2", "p-3")
    await scene.spoil("p-2", rail_type="Not a rail")

    await scene.run_payments()

    (complete,) = [row for row in await scene.log() if row["action"] == "BATCH_COMPLETE"]
    assert json.loads(complete["detail"]) == {"dispatched": 2, "failed": 1}
    (failed,) = [row for row in await scene.log() if row["action"] == "DISPATCH_FAILED"]
    assert (failed["payment_id"], failed["status_after"]) == ("p-2", "DEAD")
    assert failed["detail"].startswith("rail_type: ")


async def test_a_payment_without_a_context_is_a_failed_dispatch(scene: Scene) -> None:
    """Its item is dead; an auditor who asks why it was never paid finds the row."""
    await scene.app.pool.execute(
        """SELECT penstock.enqueue('payment', '{"payment_id": "p-9"}', owner => 'payments')"""
    )

    await scene.run_payments()

    failed, complete = await scene.log()
    assert (failed["payment_id"], failed["action"]) == ("p-9", "DISPATCH_FAILED")
    assert (failed["status_after"], failed["item_type"]) == ("DEAD", "PAYMENT")
    assert failed["detail"] == "the payment has no context"
    assert complete["action"] == "BATCH_COMPLETE"
    assert json.loads(complete["detail"]) == {"dispatched": 0, "failed": 1}


@pytest.mark.parametrize("is_snoozed", [True, False], ids=["snoozed", "given back"])
async def test_a_batch_whose_last_part_waits_is_complete(scene: Scene, *, is_snoozed: bool) -> None:
    """A payment that was given back was no dispatch, and the batch is over nevertheless."""
    await scene.schedule("p-1", "p-2")
    await scene.claim_and_stall()
    pool, log = scene.app.pool, DispatchLog(lane=LANE, meter=scene.app.meter)
    token = await pool.fetchval("SELECT token FROM penstock.lease")

    async with pool.acquire() as db, db.transaction():
        await log.record(db, token, [an_attempt("p-1", "done")])
        await db.execute("DELETE FROM penstock.lease")
        last = [an_attempt("p-2", "snooze")] if is_snoozed else []
        await log.record(db, token, last)

    rows = await scene.log()
    assert [row["action"] for row in rows] == ["DISPATCHED", "BATCH_COMPLETE"]
    assert json.loads(rows[1]["detail"]) == {"dispatched": 1, "failed": 0}


def an_attempt(payment_id: str, outcome: str) -> SettledAttempt:
    return SettledAttempt(
        item_id=ItemId(1),
        attempt=1,
        claimed_at=datetime.now(UTC),
        duration_ms=1,
        ending=DONE,
        outcome=outcome,
        reason=None,
        preloaded=PaymentRef(payment_id),
    )


async def test_a_batch_that_is_settled_in_parts_is_complete_once(scene: Scene) -> None:
    """With jitter a batch starts over seconds: the first are settled before the last have begun."""
    ids = [f"p-{number}" for number in range(40)]
    await scene.set_lane(dispatch_interval=timedelta(0), jitter_window=timedelta(seconds=1))
    await scene.schedule(*ids)

    async def is_complete() -> bool:
        return await completed(scene) > 0

    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(scene.app.run_worker(stop, lanes=[LANE]))
        await until(is_complete, within=60)
        stop.set()

    assert await completed(scene) == 1
    rows = await scene.log()
    assert sorted(row["payment_id"] for row in rows if row["payment_id"]) == sorted(ids)
    (complete,) = [row for row in rows if row["action"] == "BATCH_COMPLETE"]
    assert json.loads(complete["detail"]) == {"dispatched": 40, "failed": 0}


async def completed(scene: Scene) -> int:
    return await scene.app.pool.fetchval(
        "SELECT count(*) FROM penstock.dispatch_audit_log WHERE action = 'BATCH_COMPLETE'"
    )


@pytest.mark.covers("A65", "A66", "A67", "A68", "A69", "A70")
async def test_the_metrics_of_the_document_move(scene: Scene) -> None:
    await scene.set_lane(**NO_PACING)
    await scene.schedule("p-1", "p-2", "p-3")
    await scene.spoil("p-3", rail_type="Not a rail")
    before = await metrics(scene)
    assert before['dispatch_queue_depth{lane="payment",status="READY"}'] == 3
    assert before['dispatch_due_depth{lane="payment"}'] == 3

    async def are_all_settled() -> bool:
        return await scene.item_states() == ["dead", "done", "done"]

    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(scene.app.run_worker(stop, lanes=[LANE]))
        await until(are_all_settled, within=60)
        stop.set()

    counted = scene.app.meter.counters
    lane = (("lane", LANE),)
    assert counted["dispatch_batch_claimed_total", lane] == 3
    assert counted["dispatch_workflow_started_total", lane] == 2
    assert counted["dispatch_workflow_start_failures_total", lane] == 1
    assert scene.app.meter.histograms["dispatch_cycle_duration_seconds", lane].count > 0


async def metrics(scene: Scene) -> dict[str, Any]:
    """Return the samples of a scrape."""
    text = (await scene.client.get("/q/metrics")).text
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


@pytest.mark.parametrize(
    "write",
    [
        "UPDATE penstock.dispatch_audit_log SET action = 'DISPATCH_FAILED'",
        "DELETE FROM penstock.dispatch_audit_log",
        "TRUNCATE penstock.dispatch_audit_log",
        "TRUNCATE penstock.dispatch_audit_log_kept",
        "UPDATE penstock.payment_exec_context SET context_version = 2",
        "DELETE FROM penstock.payment_exec_context",
        "TRUNCATE penstock.payment_exec_context",
    ],
)
async def test_log_and_contexts_are_append_only_for_their_owner_too(
    scene: Scene, write: LiteralString
) -> None:
    """A log that can be edited proves nothing, and what is executed is what was scheduled."""
    await scene.schedule("p-1")
    await scene.run_payments()
    before = await scene.log()

    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="append-only"):
        await scene.app.pool.execute(write)

    assert await scene.log() == before


async def test_each_day_of_the_log_is_append_only(scene: Scene) -> None:
    """Partitions do not inherit a trigger for TRUNCATE."""
    async with scene.app.pool.acquire() as db:
        for days_ahead in (0, 3):
            await open_days(db, now=datetime.now(UTC) + timedelta(days=days_ahead))
    days = await scene.app.pool.fetch(
        "SELECT inhrelid::regclass::text FROM pg_inherits"
        " WHERE inhparent = 'penstock.dispatch_audit_log'::regclass"
    )

    assert len(days) >= 4
    for (day,) in days:
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="append-only"):
            await scene.app.pool.execute(cast("LiteralString", f"TRUNCATE {day}"))


async def test_retention_still_drops_a_day_of_the_log(scene: Scene) -> None:
    await scene.app.pool.execute(
        "INSERT INTO penstock.dispatch_audit_log (batch_id, item_type, action)"
        " VALUES ('BATCH-1', 'PAYMENT', 'BATCH_COMPLETE')"
    )
    later = datetime.now(UTC) + timedelta(days=400)
    async with scene.app.pool.acquire() as db:
        await open_days(db, now=later)

        await retain(db, now=later)

    assert await scene.log() == []
