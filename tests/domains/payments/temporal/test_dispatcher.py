"""The dispatcher as a workflow on Temporal: four steps over the kernel's claim, each tried once."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from structlog.testing import capture_logs
from temporalio import converter
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowFailureError

from penstock.compose.temporal import start_on
from penstock.domains.payments.temporal.dispatcher_activities import (
    CYCLE_MAX,
    DispatcherActivities,
)
from penstock.domains.payments.temporal.engine import NewExecution, NotStarted
from penstock.domains.payments.temporal.models import ClaimedBatch, DispatchConfig
from penstock.kernel.sweep import rescue
from tests.domains.outbox.sending.ledger import Ledger
from tests.domains.payments.executing.scene import LEASE_OVER
from tests.domains.payments.temporal.scene import TemporalScene, activities_of

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
TEMPORAL_BYTES_MAX = 2_000_000  # Of one value.
TOO_LARGE = "x" * 3_000_000
PAYMENT_LANE = (("lane", "payment"),)
STEPS = ["readDispatchConfig", "claimBatch", "dispatchBatch", "recordResults"]


@pytest.fixture(autouse=True)
async def scheduled(scene: TemporalScene) -> None:
    await scene.use("temporal_schedule")


@pytest.mark.covers("A17", "A25", "A28", "A29", "A31", "A32")
async def test_a_cycle_has_four_steps_which_are_tried_once(scene: TemporalScene) -> None:
    payment_ids = scene.ids(3)
    await scene.payments.schedule(*payment_ids)

    async with scene.workers("dispatch"):
        cycle = await scene.begin_dispatch()
        started = await scene.client.get_workflow_handle(cycle).result()

    history = await scene.history(cycle)
    assert started == 3
    assert activities_of(history) == STEPS
    for event in history:
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            scheduled = event.activity_task_scheduled_event_attributes
            assert scheduled.retry_policy.maximum_attempts == 1
            assert scheduled.schedule_to_start_timeout.seconds == 60
            is_long = scheduled.activity_type.name == "dispatchBatch"
            assert scheduled.heartbeat_timeout.seconds == (15 if is_long else 0)
    for each in payment_ids:
        assert len(await scene.runs(each)) == 1
    assert set(await scene.payments.item_states()) == {"done"}
    log = await scene.payments.log()
    assert [each["action"] for each in log] == ["DISPATCHED"] * 3 + ["BATCH_COMPLETE"]
    assert {each["batch_id"] for each in log} == {log[0]["batch_id"]}
    assert log[0]["batch_id"].startswith("BATCH-")


@pytest.mark.covers("A66", "A67", "A68", "A69")
async def test_a_cycle_moves_the_metrics_of_the_document(scene: TemporalScene) -> None:
    *_, spoilt = payment_ids = scene.ids(3)
    await scene.payments.schedule(*payment_ids)
    await scene.payments.spoil(spoilt, creditor={"name": TOO_LARGE})

    async with scene.workers("dispatch"):
        assert await scene.dispatch() == 2

    meter, lane = scene.payments.app.meter, (("lane", "payment"),)
    assert meter.counters["dispatch_batch_claimed_total", lane] == 3
    assert meter.counters["dispatch_workflow_started_total", lane] == 2
    assert meter.counters["dispatch_workflow_start_failures_total", lane] == 1
    assert meter.histograms["dispatch_cycle_duration_seconds", lane].count == 1


@pytest.mark.covers("A69")
async def test_a_cycle_is_measured_up_to_the_mark_of_its_starts(scene: TemporalScene) -> None:
    """The starts take most of it: without them it would be short while Temporal is slow."""
    meter, name = scene.payments.app.meter, ("dispatch_cycle_duration_seconds", PAYMENT_LANE)
    batch, config = await claimed_batch(scene, 1)
    claimed = name in meter.histograms

    await activities(scene).dispatch_batch(batch, config)
    await activities(scene).claim_batch(config)

    assert not claimed
    assert meter.histograms[name].count == 2, "the second cycle is empty"


async def test_a_dispatched_payment_is_executed_and_paid_once(
    scene: TemporalScene, ledger: Ledger
) -> None:
    payment_ids = scene.ids(3)
    await scene.payments.schedule(*payment_ids)

    async with scene.workers("dispatch", "exec"):
        assert await scene.dispatch() == 3
        assert await scene.dispatch() == 0
        results = [await scene.result(each) for each in payment_ids]

    assert results == ["PROCESSING"] * 3
    await scene.payments.run()
    assert sorted(ledger.bookings) == payment_ids


@pytest.mark.covers("A21")
async def test_ids_pass_through_the_history_and_contexts_do_not(scene: TemporalScene) -> None:
    """500 contexts in one payload would exceed what Temporal takes."""
    (payment_id,) = scene.ids(1)
    await scene.payments.schedule(payment_id)
    await scene.payments.spoil(payment_id, creditor={"name": "a name in a context"})

    async with scene.workers("dispatch"):
        cycle = await scene.begin_dispatch()
        await scene.client.get_workflow_handle(cycle).result()

    text = "".join(str(each) for each in await scene.history(cycle))
    assert payment_id in text
    assert "a name in a context" not in text
    batch, _ = await recorded_batch(scene, cycle)
    assert batch.batch_id.startswith("BATCH-")
    assert batch.payment_ids == [payment_id]
    started = (await scene.history(f"exec-payment-{payment_id}"))[0]
    assert "a name in a context" in str(started)


@pytest.mark.covers("A18", "A74")
async def test_a_lane_that_is_switched_off_is_not_claimed(scene: TemporalScene) -> None:
    (payment_id,) = scene.ids(1)
    await scene.payments.schedule(payment_id)
    await scene.payments.set_lane(enabled=False)

    async with scene.workers("dispatch"):
        cycle = await scene.begin_dispatch()
        assert await scene.client.get_workflow_handle(cycle).result() == 0
        assert activities_of(await scene.history(cycle)) == STEPS[:1]
        assert await scene.payments.item_states() == ["ready"]

        await scene.payments.set_lane(enabled=True)
        assert await scene.dispatch() == 1


@pytest.mark.covers("A19", "A22", "A73")
async def test_each_cycle_takes_a_batch_whatever_the_lanes_own_interval_is(
    scene: TemporalScene,
) -> None:
    """The schedule keeps the interval; a second clock in the lane would skip cycles."""
    await scene.payments.schedule(*scene.ids(5))
    await scene.payments.set_lane(batch_size=2, dispatch_interval=HOUR)

    async with scene.workers("dispatch"):
        first = await scene.dispatch()
        await scene.payments.set_lane(batch_size=10)
        second = await scene.dispatch()
        cycle = await scene.begin_dispatch()
        empty = await scene.client.get_workflow_handle(cycle).result()

    assert (first, second, empty) == (2, 3, 0)
    assert activities_of(await scene.history(cycle)) == STEPS[:2]


@pytest.mark.covers("A30", "A40", "A44")
async def test_what_a_failed_cycle_claimed_is_dispatched_after_the_lease(
    scene: TemporalScene, ledger: Ledger
) -> None:
    """A failed step is not repeated: the lease gives the items back, and a later cycle goes on."""
    (payment_id,) = scene.ids(1)
    await scene.payments.schedule(payment_id)
    pool = scene.payments.app.pool
    async with scene.workers("dispatch", "exec"):
        await pool.execute("ALTER TABLE penstock.payment_exec_context RENAME TO away")
        with pytest.raises(WorkflowFailureError):
            await scene.dispatch()
        assert await scene.payments.item_states() == ["leased"]
        await pool.execute("ALTER TABLE penstock.away RENAME TO payment_exec_context")
        assert await scene.dispatch() == 0
        async with pool.acquire() as db:
            await rescue(db, now=await db.fetchval("SELECT now()") + LEASE_OVER)
        await pool.execute("UPDATE penstock.ready SET due_at = now()")

        assert await scene.dispatch() == 1
        assert await scene.result(payment_id) == "PROCESSING"

    assert len(await scene.runs(payment_id)) == 1
    await scene.payments.run()
    assert ledger.bookings == [payment_id]


@pytest.mark.covers("A36")
async def test_a_cycle_that_outlives_its_lease_changes_nothing(scene: TemporalScene) -> None:
    """Another cycle has the items by then: the guard finds no row, and a warning is logged."""
    (payment_id,) = scene.ids(1)
    await scene.payments.schedule(payment_id)
    async with scene.workers("dispatch"):
        cycle = await scene.begin_dispatch()
        await scene.client.get_workflow_handle(cycle).result()
    before = await scene.payments.log()

    batch, config = await recorded_batch(scene, cycle)
    late = activities(scene)
    with capture_logs() as lines:
        again = await late.dispatch_batch(batch, config)
        await late.record_results(batch.batch_id, again, config)

    assert not again.is_recorded
    assert [(each["event"], each["log_level"]) for each in lines] == [
        ("dispatch.overran", "warning")
    ]
    assert await scene.payments.log() == before
    assert await scene.payments.item_states() == ["done"]
    assert len(await scene.runs(payment_id)) == 1


async def test_nothing_is_started_of_a_batch_whose_lease_is_over(scene: TemporalScene) -> None:
    """Its payments went back to the queue: a person may have given them another day."""
    batch, config = await claimed_batch(scene, 2)
    async with scene.payments.app.pool.acquire() as db:
        await rescue(db, now=await db.fetchval("SELECT now()") + LEASE_OVER)

    late = await activities(scene).dispatch_batch(batch, config)

    assert (late.started, late.is_recorded) == ([], False)
    assert await scene.payments.item_states() == ["scheduled", "scheduled"]
    assert not await scene.is_started(batch.payment_ids[0])


async def test_a_claimed_batch_is_given_back_if_its_lane_is_paused(scene: TemporalScene) -> None:
    batch, config = await claimed_batch(scene, 2)
    await scene.payments.set_lane(enabled=False)

    paused = await activities(scene).dispatch_batch(batch, config)

    assert (paused.started, paused.failed, paused.is_recorded) == ([], {}, True)
    assert await scene.payments.item_states() == ["ready", "ready"]
    assert await scene.payments.log() == []
    await scene.payments.set_lane(enabled=True)
    again = await activities(scene).claim_batch(config)
    started = await activities(scene).dispatch_batch(again, config)
    assert started.started == batch.payment_ids


async def test_a_cycle_starts_at_most_a_minute_ahead_of_a_rate(scene: TemporalScene) -> None:
    """What was started with a delay runs although its lane was paused meanwhile."""
    await scene.payments.set_lane(rate=0.1, dispatch_interval=HOUR)

    batch, _ = await claimed_batch(scene, 20)

    assert 1 < len(batch.payment_ids) < 20
    assert max(batch.start_in_ms) <= 60_000


async def test_the_longest_ids_of_a_cycle_fit_into_its_history(scene: TemporalScene) -> None:
    """Temporal refuses a larger value after the claim: each cycle would cost a lost attempt."""
    await scene.payments.set_lane(batch_size=10_000)
    longest = "\u4e00" * 250  # As JSON, a character takes six bytes.
    await scene.payments.schedule(*(f"{longest}{number:05}" for number in range(CYCLE_MAX + 1)))

    batch, _ = await claimed_batch(scene, 0)

    assert len(batch.payment_ids) == CYCLE_MAX
    (value,) = converter.default().payload_converter.to_payloads([batch])
    assert len(value.data) < TEMPORAL_BYTES_MAX


async def test_a_worker_says_that_it_is_alive_while_it_starts_workflows(
    scene: TemporalScene,
) -> None:
    """One that was killed is missed soon: until then no other cycle of the item type begins."""
    batch, config = await claimed_batch(scene, 1)
    beats: asyncio.Queue[None] = asyncio.Queue()

    async def start_slowly(executions: Sequence[NewExecution]) -> list[NotStarted | None]:
        for _ in range(3):
            await beats.get()
        return [None for _ in executions]

    slow = replace(
        activities(scene),
        start=start_slowly,
        beat=lambda: beats.put_nowait(None),
        beat_every=timedelta(milliseconds=10),
    )
    results = await slow.dispatch_batch(batch, config)

    assert results.started == batch.payment_ids


@pytest.mark.covers("A90")
async def test_a_payment_that_is_claimed_early_starts_at_its_time(scene: TemporalScene) -> None:
    (payment_id,) = scene.ids(1)
    await scene.payments.schedule(payment_id)
    await scene.payments.set_lane(pre_start_buffer=HOUR)
    due_at = await scene.payments.app.pool.fetchval(
        "UPDATE penstock.ready SET due_at = now() + interval '30 minutes' RETURNING due_at"
    )

    async with scene.workers("dispatch"):
        await scene.dispatch()

    assert due_at <= await scene.start_time(payment_id) < due_at + MINUTE


def activities(scene: TemporalScene) -> DispatcherActivities:
    resources = scene.payments.app.resources
    return DispatcherActivities(
        pool=resources.pool,
        start=partial(start_on, scene.client),
        meter=resources.meter,
        log=resources.log,
        beat=lambda: None,
    )


async def claimed_batch(scene: TemporalScene, count: int) -> tuple[ClaimedBatch, DispatchConfig]:
    """Claim payments as a cycle does that then waits for a worker."""
    await scene.payments.schedule(*scene.ids(count))
    cycle = activities(scene)
    config = await cycle.read_dispatch_config("PAYMENT")
    return await cycle.claim_batch(config), config


async def recorded_batch(scene: TemporalScene, cycle: str) -> tuple[ClaimedBatch, DispatchConfig]:
    """Return what a cycle has dispatched, from its history."""
    for event in await scene.history(cycle):
        scheduled = event.activity_task_scheduled_event_attributes
        if scheduled.activity_type.name == "dispatchBatch":
            batch, config = (json.loads(each.data) for each in scheduled.input.payloads)
            return ClaimedBatch(**batch), DispatchConfig(**config)
    raise AssertionError("the cycle has dispatched nothing")
