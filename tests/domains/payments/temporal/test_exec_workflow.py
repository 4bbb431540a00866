"""The workflow of an execution: business steps only, replayable, and each payment is paid once."""

import ast
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError, WorkflowHistory
from temporalio.exceptions import ApplicationError
from temporalio.worker import Replayer

from penstock.compose.payments import make_notifier, send_instructions
from penstock.domains.payments.execute import Execution
from penstock.domains.payments.temporal import exec_workflow
from penstock.domains.payments.temporal.dispatcher_workflow import DispatcherWorkflow
from penstock.domains.payments.temporal.exec_activities import ExecActivities
from penstock.domains.payments.temporal.exec_workflow import PaymentExecWorkflow
from penstock.domains.payments.temporal.init_workflow import PaymentInitWorkflow
from penstock.integrations.temporal.worker import SANDBOX, WorkerSpec
from penstock.postgres.pool import Connection
from tests.domains.outbox.sending.ledger import Ledger
from tests.domains.payments.temporal.scene import SECOND, TemporalScene, activities_of
from tests.domains.payments.temporal.test_init import request, start_init

HISTORIES = Path(__file__).parent / "histories"
STEPS = ["executePayment", "postProcess", "sendNotifications"]


@pytest.mark.covers("A11")
def test_the_workflow_imports_nothing_of_ours_but_its_models() -> None:
    """Business logic that knew the queue could not be moved to another one."""
    tree = ast.parse(Path(exec_workflow.__file__).read_text(encoding="utf-8"))
    imported = {
        name
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }

    ours = {name for name in imported if name.startswith("penstock")}
    assert ours == {"penstock.domains.payments.temporal.models"}
    assert {name.split(".")[0] for name in imported - ours} <= {"temporalio", "json", "datetime"}


def test_the_models_are_plain() -> None:
    """What the workflow imports imports nothing of Penstock either."""
    models = HISTORIES.parents[4] / "src/penstock/domains/payments/temporal/models.py"
    assert "penstock" not in models.read_text(encoding="utf-8").replace("`penstock", "")


async def test_the_steps_run_in_their_order(scene: TemporalScene) -> None:
    (payment_id,) = scene.ids(1)
    await scene.payments.schedule(payment_id)

    async with scene.workers("exec"):
        await scene.payments.run_payments()
        await scene.result(payment_id)

    assert activities_of(await scene.history(f"exec-payment-{payment_id}")) == STEPS


async def test_a_payment_that_was_executed_elsewhere_is_not_executed_again(
    scene: TemporalScene, ledger: Ledger
) -> None:
    """Temporal forgets closed workflows after its retention; the payment does not forget."""
    (payment_id,) = scene.ids(1)
    await scene.payments.schedule(payment_id, notify={"event": True})
    await scene.use("builtin")
    await scene.payments.run_payments()
    await scene.start(payment_id)

    async with scene.workers("exec"):
        await scene.result(payment_id)

    await scene.payments.run()
    assert ledger.bookings == [payment_id]
    kinds = [kind for kind, _ in await scene.payments.events()]
    assert kinds == ["payment.processing", "payment.settled"]


async def test_a_cancelled_payment_is_not_executed(scene: TemporalScene, ledger: Ledger) -> None:
    (payment_id,) = scene.ids(1)
    await scene.payments.schedule(payment_id)
    await scene.start(payment_id)
    await scene.payments.app.pool.execute(
        "SELECT penstock.move_payments($1, ARRAY['SCHEDULED'], 'CANCELLED')", [payment_id]
    )

    async with scene.workers("exec"):
        assert await scene.result(payment_id) == "CANCELLED"

    await scene.payments.run()
    assert ledger.bookings == []
    assert activities_of(await scene.history(f"exec-payment-{payment_id}")) == STEPS[:1]


async def test_a_rescheduled_payment_is_executed_when_it_is_due(
    scene: TemporalScene, ledger: Ledger
) -> None:
    """Temporal may have stored a start that it did not answer, and the payment was moved then."""
    (payment_id,) = scene.ids(1)
    await scene.payments.schedule(payment_id)
    moved = await scene.payments.client.post(
        f"/payments/{payment_id}/reschedule",
        json={"execute_at": (datetime.now(UTC) + 2 * SECOND).isoformat()},
    )
    due_at = datetime.fromisoformat(moved.json()["payment"]["scheduled_at"])
    await scene.start(payment_id)

    async with scene.workers("exec"):
        assert await scene.result(payment_id) == "PROCESSING"

    await scene.payments.run()
    assert ledger.bookings == [payment_id]
    assert (await scene.payments.payment(payment_id))["accepted_at"] >= due_at


async def test_a_payment_that_the_outbox_refuses_is_rejected(scene: TemporalScene) -> None:
    (payment_id,) = scene.ids(1)
    await scene.payments.schedule(payment_id, notify={"event": True})
    await scene.payments.spoil(payment_id, amount="12.505")
    await scene.start(payment_id)

    async with scene.workers("exec"):
        assert await scene.result(payment_id) == "REJECTED"

    payment = await scene.payments.payment(payment_id)
    assert payment["status"] == "REJECTED"
    assert payment["reason"]
    assert [kind for kind, _ in await scene.payments.events()] == ["payment.rejected"]


async def test_a_workflow_with_another_context_pays_nothing(
    scene: TemporalScene, ledger: Ledger
) -> None:
    """A person may start one by hand, with an amount or a creditor that no rule has seen."""
    (payment_id,) = scene.ids(1)
    await scene.payments.schedule(payment_id)
    await scene.payments.run_payments()
    await scene.client.get_workflow_handle(f"exec-payment-{payment_id}").terminate()
    stored = await scene.context(payment_id)
    activities = exec_activities(scene)

    for given in (json.dumps(json.loads(stored) | {"amount": "99999.00"}), "{}", "no JSON"):
        with pytest.raises(ApplicationError, match="not the one that is stored") as failed:
            await activities.execute_payment(payment_id, given)
        assert failed.value.non_retryable
    assert await scene.payments.status(payment_id) == "SCHEDULED"

    assert await activities.execute_payment(payment_id, stored) == "ACCEPTED"
    await scene.payments.run()
    with pytest.raises(ApplicationError, match="not the one that is stored"):
        await activities.post_process_payment(payment_id, "{}")
    assert await scene.payments.status(payment_id) == "SETTLED"
    assert ledger.bookings == [payment_id]


async def test_a_context_that_is_no_json_fails_the_workflow(scene: TemporalScene) -> None:
    """An error in the workflow itself would be repeated for ever, and nobody would see it."""
    (payment_id,) = scene.ids(1)
    await scene.payments.schedule(payment_id)
    await scene.start(payment_id, context="no JSON")

    async with scene.workers("exec"):
        with pytest.raises(WorkflowFailureError):
            await scene.result(payment_id)

    payment = await scene.payments.payment(payment_id)
    assert payment["status"] == "SCHEDULED"
    assert "the context is not the one that is stored" in payment["reason"]


async def test_an_item_without_a_payment_fails_the_workflow(scene: TemporalScene) -> None:
    """Completed, it would look as if something had been paid."""
    (payment_id,) = scene.ids(1)
    await scene.start(payment_id, context="{}")

    with capture_logs() as lines:
        async with scene.workers("exec"):
            with pytest.raises(WorkflowFailureError):
                await scene.result(payment_id)

    warned = [each["log_level"] for each in lines if each["event"] == "payment.not_moved"]
    assert warned == ["warning"]
    (run,) = await scene.runs(payment_id)
    assert run.status == WorkflowExecutionStatus.FAILED


async def test_functions_of_a_user_get_the_stored_type_and_version(scene: TemporalScene) -> None:
    """They may decide by both, as with the built-in engine."""
    (payment_id,) = scene.ids(1)
    await scene.payments.app.pool.execute(
        "INSERT INTO penstock.exec_rate_config (item_type) VALUES ('REFUND')"
    )
    await scene.payments.schedule(payment_id, item_type="REFUND")
    await scene.payments.spoil(payment_id, version=2)
    seen: list[Execution] = []

    async def note(_db: Connection, executions: Sequence[Execution]) -> None:
        seen.extend(executions)

    activities = replace(exec_activities(scene), post_process=note)
    context = await scene.context(payment_id)
    await activities.execute_payment(payment_id, context)
    await activities.post_process_payment(payment_id, context)

    assert [(each.payment.item_type, each.payment.context_version) for each in seen] == [
        ("REFUND", 2)
    ]


async def test_a_payment_that_the_rail_refuses_first_is_processed_further(
    scene: TemporalScene, ledger: Ledger
) -> None:
    """With the built-in engine it always is: its transaction is that of the execution."""
    (payment_id,) = scene.ids(1)
    await scene.payments.schedule(payment_id)
    ledger.orders += ["REJECTED"]
    seen: list[str] = []

    async def note(_db: Connection, executions: Sequence[Execution]) -> None:
        seen.extend(each.payment.payment_id for each in executions)

    activities = replace(exec_activities(scene), post_process=note)
    context = await scene.context(payment_id)
    await activities.execute_payment(payment_id, context)
    await scene.payments.run()
    assert await scene.payments.status(payment_id) == "REJECTED"

    assert await activities.execute_payment(payment_id, context) == "ACCEPTED"
    assert await activities.post_process_payment(payment_id, context) == "ACCEPTED"

    assert seen == [payment_id]
    assert await scene.payments.status(payment_id) == "REJECTED"


async def test_a_rail_that_is_faster_than_the_notifications_has_the_last_word(
    scene: TemporalScene,
) -> None:
    (payment_id,) = scene.ids(1)
    await scene.payments.schedule(payment_id)
    activities = exec_activities(scene)
    context = await scene.context(payment_id)

    await activities.execute_payment(payment_id, context)
    await scene.payments.run()
    assert await scene.payments.status(payment_id) == "SETTLED"
    with capture_logs() as lines:
        repeated = await activities.execute_payment(payment_id, context)
        posted = await activities.post_process_payment(payment_id, context)
        notified = await activities.send_notifications(payment_id, context)

    assert (repeated, posted, notified) == ("ACCEPTED", "ACCEPTED", "SETTLED")
    assert lines == []
    assert await scene.payments.status(payment_id) == "SETTLED"


async def test_a_step_that_fails_for_good_is_shown_with_the_payment(
    scene: TemporalScene, ledger: Ledger
) -> None:
    """After the dispatch the execution is Temporal's; a person who looks here must see it."""

    async def fail(_db: Connection, _executions: Sequence[Execution]) -> None:
        raise ApplicationError("no such account", non_retryable=True)

    (payment_id,) = scene.ids(1)
    await scene.payments.schedule(payment_id)
    await scene.start(payment_id)
    spec = exec_spec(scene, replace(exec_activities(scene), post_process=fail))

    async with scene.running([spec]):
        with pytest.raises(WorkflowFailureError):
            await scene.result(payment_id)

    payment = await scene.payments.payment(payment_id)
    assert payment["status"] == "ACCEPTED"
    assert payment["reason"] == "execution failed: postProcess: no such account"
    await scene.payments.run()
    assert ledger.bookings == [payment_id]


@pytest.mark.covers("A16")
async def test_an_execution_that_fails_leaves_the_row_of_the_queue(scene: TemporalScene) -> None:
    """After the dispatch the queue is not written again, whatever becomes of the execution."""

    async def fail(_db: Connection, _executions: Sequence[Execution]) -> None:
        raise ApplicationError("no such account", non_retryable=True)

    (payment_id,) = scene.ids(1)
    await scene.payments.schedule(payment_id)
    await scene.payments.run_payments()
    pool = scene.payments.app.pool
    before = await pool.fetch("SELECT * FROM penstock.payment_exec_queue")
    attempts = await pool.fetch("SELECT * FROM penstock.attempt")
    spec = exec_spec(scene, replace(exec_activities(scene), post_process=fail))

    async with scene.running([spec]):
        with pytest.raises(WorkflowFailureError):
            await scene.result(payment_id)

    (after,) = await pool.fetch("SELECT * FROM penstock.payment_exec_queue")
    assert after["queue_status"] == "DISPATCHED"
    assert [after] == before
    assert await pool.fetch("SELECT * FROM penstock.attempt") == attempts


async def test_new_histories_are_replayed(scene: TemporalScene) -> None:
    """What a worker does now must be what it does when it reads the history again."""
    payment_id, new = scene.ids(2)
    await scene.payments.schedule(payment_id)
    await scene.use("temporal_schedule")
    async with scene.workers("dispatch", "exec", "init"):
        cycle = await scene.begin_dispatch()
        await scene.client.get_workflow_handle(cycle).result()
        await scene.result(payment_id)
        init = await start_init(scene, new, request(new))
        await scene.client.get_workflow_handle(init).result()

    for workflow_id in (cycle, f"exec-payment-{payment_id}", init):
        history = await scene.client.get_workflow_handle(workflow_id).fetch_history()
        await replayer().replay_workflow(history)


@pytest.mark.parametrize("name", ["dispatcher", "payment_exec", "payment_init"])
async def test_recorded_histories_are_replayed(name: str) -> None:
    """A workflow that was started by an earlier release goes on with this one."""
    text = (HISTORIES / f"{name}.json").read_text(encoding="utf-8")
    await replayer().replay_workflow(WorkflowHistory.from_json(name, text))


def replayer() -> Replayer:
    workflows = [DispatcherWorkflow, PaymentExecWorkflow, PaymentInitWorkflow]
    return Replayer(workflows=workflows, workflow_runner=SANDBOX)


def exec_activities(scene: TemporalScene) -> ExecActivities:
    resources = scene.payments.app.resources
    return ExecActivities(
        pool=resources.pool,
        log=resources.log,
        execute=send_instructions,
        notify=make_notifier(resources.settings, log=resources.log),
    )


def exec_spec(scene: TemporalScene, activities: ExecActivities) -> WorkerSpec:
    return WorkerSpec(
        task_queue=scene.exec_queue,
        workflows=[PaymentExecWorkflow],
        activities=[
            activities.execute_payment,
            activities.post_process_payment,
            activities.send_notifications,
            activities.report_failure,
        ],
        workflows_at_once=5,
        activities_at_once=5,
    )
