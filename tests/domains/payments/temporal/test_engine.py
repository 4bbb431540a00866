"""The engine `temporal`: a worker claims payments and starts one workflow for each."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from penstock.base.clock import FakeClock
from penstock.compose import payments
from penstock.compose.temporal import TemporalSettings
from penstock.contract import Resources, Runtime
from penstock.domains.payments.operate import cancel
from penstock.domains.payments.temporal.engine import (
    GROUP,
    TOO_SLOW,
    NewExecution,
    NotStarted,
    start_in_groups,
)
from penstock.kernel.item import Done, Retry
from tests.domains.outbox.sending.ledger import Ledger
from tests.domains.payments.executing.scene import opened_scene
from tests.domains.payments.temporal.scene import TemporalScene, opened_on_temporal
from tests.temporal_server import TemporalServer, silent_server

MINUTE = timedelta(minutes=1)
CYCLE = timedelta(seconds=5)
USE_TEMPORAL = "UPDATE penstock.payment_item_type SET engine = 'temporal'"
TOO_LARGE = "x" * 3_000_000  # Temporal takes 2 MB.


@pytest.mark.covers("A8", "A10", "A24", "A59")
async def test_a_due_payment_becomes_a_workflow_with_its_context(scene: TemporalScene) -> None:
    (payment_id,) = scene.ids(1)
    await scene.payments.schedule(payment_id)

    (attempted,) = await scene.payments.run_payments()

    assert isinstance(attempted.outcome, Done)
    (run,) = await scene.runs(payment_id)
    assert run.workflow_type == "PaymentExecWorkflow"
    assert run.task_queue == scene.exec_queue
    started = (await scene.history(run.id))[0].workflow_execution_started_event_attributes
    given = [json.loads(each.data) for each in started.input.payloads]
    assert given[0] == payment_id
    assert json.loads(given[1]) == json.loads(await scene.context(payment_id))


@pytest.mark.covers("A11", "A15")
async def test_a_started_payment_is_executed_and_paid_once(
    scene: TemporalScene, ledger: Ledger
) -> None:
    payment_ids = scene.ids(5)
    await scene.payments.schedule(*payment_ids, notify={"event": True})

    async with scene.workers("exec"):
        await scene.payments.run_payments()
        results = [await scene.result(each) for each in payment_ids]

    assert results == ["PROCESSING"] * 5
    await scene.payments.run()
    assert {await scene.payments.status(each) for each in payment_ids} == {"SETTLED"}
    assert sorted(ledger.bookings) == payment_ids
    told = [(kind, data["payment_id"]) for kind, data in await scene.payments.events()]
    assert sorted(told) == sorted(
        (kind, each) for each in payment_ids for kind in ("payment.processing", "payment.settled")
    )


@pytest.mark.covers("A42", "A87")
async def test_a_payment_whose_start_was_not_recorded_gets_no_second_run(
    scene: TemporalScene, ledger: Ledger
) -> None:
    """The worker died between the start and the mark, and the execution has closed meanwhile."""
    (payment_id,) = scene.ids(1)
    await scene.payments.schedule(payment_id)
    async with scene.workers("exec"):
        await scene.payments.run_payments()
        await scene.result(payment_id)
    await scene.payments.app.pool.execute(
        "INSERT INTO penstock.ready (due_at, id, lane_id, attempt, forgiven)"
        " SELECT now(), item_id, lane_id, 1, 0 FROM penstock.payment, penstock.lane"
        " WHERE lane.name = 'payment'"
    )

    (attempted,) = await scene.payments.run_payments()

    assert isinstance(attempted.outcome, Done)
    assert len(await scene.runs(payment_id)) == 1
    await scene.payments.run()
    assert ledger.bookings == [payment_id]


@pytest.mark.covers("A14", "A27", "A43")
async def test_a_refused_start_gives_back_that_payment_alone(scene: TemporalScene) -> None:
    payment_ids = scene.ids(3)
    await scene.payments.schedule(*payment_ids)
    await scene.payments.spoil(payment_ids[1], creditor={"name": TOO_LARGE})

    attempted = await scene.payments.run_payments()

    (failed,) = [each for each in attempted if isinstance(each.outcome, Retry)]
    assert len(attempted) == 3
    assert "temporal: refused" in str(failed.outcome)
    (logged,) = await scene.payments.log(payment_ids[1])
    assert (logged["action"], logged["status_after"]) == ("DISPATCH_FAILED", "READY")
    retries = await scene.payments.app.pool.fetchval(
        "SELECT array_agg(attempt) FROM penstock.ready"
    )
    assert retries == [1]


@pytest.mark.covers("A41")
async def test_a_refused_start_is_tried_in_each_cycle_until_its_attempts_are_used(
    scene: TemporalScene,
) -> None:
    (payment_id,) = scene.ids(1)
    await scene.payments.schedule(payment_id)
    await scene.payments.spoil(payment_id, creditor={"name": TOO_LARGE})
    await scene.payments.set_lane(max_attempts=3)

    tried = []
    for _ in range(5):
        tried.append(len(await scene.payments.run_payments()))
        scene.payments.clock.advance(CYCLE)

    assert tried == [1, 1, 1, 0, 0]
    row = await scene.payments.app.pool.fetchrow(
        "SELECT queue_status, retry_count, last_error FROM penstock.payment_exec_queue"
    )
    assert row is not None
    assert (row["queue_status"], row["retry_count"]) == ("DEAD", 3)
    assert "temporal: refused" in row["last_error"]


@pytest.mark.covers("A90")
async def test_a_payment_that_is_claimed_early_starts_at_its_time(scene: TemporalScene) -> None:
    """With jitter alone as its delay, it would run before its time."""
    (payment_id,) = scene.ids(1)
    await scene.payments.schedule(payment_id)
    await scene.payments.set_lane(pre_start_buffer=10 * MINUTE)
    due_at = await scene.payments.app.pool.fetchval(
        "UPDATE penstock.ready SET due_at = now() + interval '5 minutes' RETURNING due_at"
    )

    await scene.claim_now()

    assert due_at <= await scene.start_time(payment_id) < due_at + MINUTE


async def test_a_cancelled_payment_is_not_executed_by_the_workflow_that_waits_for_it(
    scene: TemporalScene,
) -> None:
    """The kill switch cannot call back a start with a delay; an operator can, for one payment."""
    payment_id, other = scene.ids(2)
    await scene.payments.schedule(payment_id, other)
    await scene.payments.run_payments()
    async with scene.payments.app.pool.acquire() as db:
        await cancel(db, payment_id, who="test", reason="fraud")

    async with scene.workers("exec"):
        results = [await scene.result(each) for each in (payment_id, other)]

    assert results == ["CANCELLED", "PROCESSING"]
    assert await scene.payments.status(payment_id) == "CANCELLED"


@pytest.mark.covers("A23", "A75")
async def test_the_jitter_is_a_delay_on_temporal(scene: TemporalScene) -> None:
    payment_ids = scene.ids(40)
    await scene.payments.schedule(*payment_ids)
    await scene.payments.set_lane(jitter_window=10 * MINUTE)

    await scene.claim_now()

    delays = [await scene.start_delay(each) for each in payment_ids]
    assert max(delays) <= 10 * MINUTE
    assert max(delays) - min(delays) > MINUTE


async def test_an_outage_of_temporal_does_not_use_up_attempts(
    dsn: str, *, clock: FakeClock, ledger: Ledger, mortal_temporal: TemporalServer
) -> None:
    """A payment is not at fault for an outage, however long it lasts."""
    target = mortal_temporal.target
    async with opened_on_temporal(dsn, clock, ledger, target=target) as scene:
        payment_ids = scene.ids(3)
        await scene.payments.schedule(*payment_ids)
        await scene.payments.set_lane(max_attempts=2)
        mortal_temporal.kill()

        outcomes = []
        for _ in range(4):
            outcomes += [each.outcome for each in await scene.payments.run_payments()]
            clock.advance(MINUTE)
        mortal_temporal.start()
        up = await scene.payments.run_payments()

        assert len(outcomes) == 12
        assert all(isinstance(each, Retry) for each in outcomes)
        assert [type(each.outcome) for each in up] == [Done] * 3
        for each in payment_ids:
            assert len(await scene.runs(each)) == 1
        log = await scene.payments.log(payment_ids[0])
        assert [each["action"] for each in log] == ["DISPATCH_FAILED"] * 4 + ["DISPATCHED"]
        assert "temporal: unavailable" in log[0]["detail"]


async def test_a_server_that_hangs_does_not_use_up_attempts(
    dsn: str, *, clock: FakeClock, ledger: Ledger, mortal_temporal: TemporalServer
) -> None:
    """A batch of several groups ends with the first: with all, its handler would be cut off."""
    target = mortal_temporal.target
    async with opened_on_temporal(dsn, clock, ledger, target=target) as scene:
        first, *payment_ids = scene.ids(1 + 7 * GROUP)
        await scene.payments.schedule(first)
        await scene.payments.run_payments()  # It has connected.
        await scene.payments.schedule(*payment_ids)
        await scene.payments.set_lane(max_attempts=1, batch_size=len(payment_ids))
        mortal_temporal.suspend()

        outcomes = [each.outcome for each in await scene.payments.run_payments()]

        assert len(outcomes) == len(payment_ids)
        assert all(isinstance(each, Retry) for each in outcomes), outcomes[0]
        assert all("temporal: unavailable" in str(each) for each in outcomes)
        assert set(await scene.payments.item_states()) == {"done", "scheduled"}


async def test_a_server_that_never_answers_does_not_use_up_attempts(
    dsn: str, *, clock: FakeClock, ledger: Ledger
) -> None:
    """Each start would wait for a connection of its own, one after another."""
    async with silent_server() as target:
        chosen = TemporalSettings(temporal_target=target)

        def build(resources: Resources) -> Runtime:
            return payments.build(resources, temporal=chosen)

        domain = replace(payments.DOMAIN, build=build)
        async with opened_scene(dsn, clock, ledger, domain) as scene:
            await scene.schedule("p-1", "p-2", "p-3")
            await scene.set_lane(max_attempts=1)
            await scene.app.pool.execute(USE_TEMPORAL)

            outcomes = [each.outcome for each in await scene.run_payments()]
            states = await scene.item_states()

    assert all(isinstance(each, Retry) for each in outcomes), outcomes
    assert ["no answer within 10 s" in str(each) for each in outcomes] == [True] * 3
    assert states == ["scheduled"] * 3


async def test_starts_that_take_too_long_end_before_their_handler_is_cut_off() -> None:
    """Temporal may answer just often enough that each group is tried."""
    execution = NewExecution(
        workflow_id="exec-payment-p-1",
        workflow_type="PaymentExecWorkflow",
        task_queue="exec",
        item_id="p-1",
        context_json="{}",
        start_delay=timedelta(0),
    )
    tried: list[int] = []

    async def start_for_ever(group: Sequence[NewExecution]) -> list[NotStarted | None]:
        tried.append(len(group))
        await asyncio.Event().wait()
        return [None] * len(group)

    async def may_start() -> bool:
        return True

    answers = await start_in_groups(
        start_for_ever, [execution] * (2 * GROUP), may_start=may_start, within=timedelta(0)
    )

    assert answers == [TOO_SLOW] * (2 * GROUP)
    assert tried == [GROUP]


async def test_a_lane_that_a_schedule_dispatches_is_not_claimed_by_workers(
    scene: TemporalScene,
) -> None:
    (payment_id,) = scene.ids(1)
    await scene.payments.schedule(payment_id)
    await scene.use("temporal_schedule")

    assert await scene.payments.run_payments() == []
    await scene.use("temporal")
    (attempted,) = await scene.payments.run_payments()

    assert isinstance(attempted.outcome, Done)


async def test_a_claimed_batch_is_not_started_once_its_lane_is_paused(
    scene: TemporalScene,
) -> None:
    """A batch of 500 takes seconds: the kill switch must not wait for its end."""
    await scene.payments.schedule(*scene.ids(2))
    go_on = await scene.payments.claim_and_stall()
    await scene.payments.set_lane(enabled=False)

    outcomes = await go_on()

    assert {type(each).__name__ for each in outcomes} == {"Snooze"}
    assert not await scene.is_started(scene.ids(1)[0])
