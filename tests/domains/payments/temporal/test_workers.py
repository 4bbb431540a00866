"""Three workers on task queues of their own, each with its own number of things at once."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from penstock.base.clock import FakeClock
from penstock.compose.payments import make_notifier, send_instructions
from penstock.compose.temporal_workers import WorkerName, worker_specs
from penstock.domains.payments.execute import Executed, Execution, Refused
from penstock.domains.payments.steps import STEPS
from penstock.domains.payments.temporal.exec_activities import ExecActivities
from penstock.integrations.temporal.inspect import count_workers
from penstock.postgres.pool import Connection
from tests.domains.outbox.sending.ledger import Ledger
from tests.domains.payments.temporal.scene import PATIENCE, TemporalScene, opened_on_temporal
from tests.domains.payments.temporal.test_init import request, start_init
from tests.fault.waiting import POLL_SECONDS, pause
from tests.temporal_server import TemporalServer

AT_ONCE = {
    "dispatch": ("dispatch-task-queue", 5, 10),
    "init": ("payment-init-task-queue", 100, 200),
    "exec": ("payment-exec-task-queue", 100, 200),
}
ACTIVITIES = {
    "dispatch": "readDispatchConfig claimBatch dispatchBatch recordResults",
    "init": (
        "validatePayment enrichPayment applyRules persistScheduledPayment buildContext"
        " determineExecTime saveContextAndEnqueue"
    ),
    "exec": "executePayment postProcess sendNotifications reportFailure",
}


@pytest.mark.covers("A61", "A62", "A63")
@pytest.mark.parametrize("name", ["dispatch", "init", "exec"])
async def test_a_worker_has_its_queue_and_its_numbers(
    scene: TemporalScene, name: WorkerName
) -> None:
    """Temporal's own list of a queue has the worker that listens there."""
    (spec,) = worker_specs(scene.payments.app.resources, scene.client, [name], steps=STEPS)
    queue, workflows, activities = AT_ONCE[name]

    async with scene.running([spec]), asyncio.timeout(PATIENCE):
        while await count_workers(scene.client, queue) == 0:
            await pause(POLL_SECONDS)

    assert (spec.workflows_at_once, spec.activities_at_once) == (workflows, activities)
    definitions = [vars(each.__func__) for each in spec.activities]  # type: ignore[attr-defined]
    names = [each["__temporal_activity_definition"].name for each in definitions]
    assert names == ACTIVITIES[name].split()


async def test_functions_of_an_app_run_on_every_engine(
    dsn: str, *, clock: FakeClock, ledger: Ledger, temporal: TemporalServer
) -> None:
    """A payment must not be executed otherwise because its item type has another engine."""
    seen: list[str] = []

    async def note(_db: Connection, executions: Sequence[Execution]) -> None:
        seen.extend(each.payment.payment_id for each in executions)

    opened = opened_on_temporal(dsn, clock, ledger, target=temporal.target, post_process=note)
    async with opened as scene:
        first, second = scene.ids(2)
        await scene.payments.schedule(first)
        async with scene.workers("exec"):
            await scene.payments.run_payments()
            await scene.result(first)
        await scene.use("builtin")
        await scene.payments.schedule(second)
        await scene.payments.run_payments()

    assert seen == [first, second]


@pytest.mark.covers("A64")
async def test_a_flood_of_executions_stops_neither_dispatches_nor_new_payments(
    scene: TemporalScene,
) -> None:
    """All places of the worker are taken, and more executions wait for one."""
    await scene.use("temporal_schedule")
    *flood, dispatched, new = scene.ids(7)
    await scene.payments.schedule(*flood)
    for each in flood:
        await scene.start(each)
    stuck = Stuck()
    activities = exec_activities(scene, stuck)
    (spec,) = worker_specs(scene.payments.app.resources, scene.client, ["exec"], steps=STEPS)
    spec = replace(
        scene.own(spec),
        activities=[
            activities.execute_payment,
            activities.post_process_payment,
            activities.send_notifications,
            activities.report_failure,
        ],
        activities_at_once=2,
    )

    async with scene.running([spec]), scene.workers("dispatch", "init"):
        await stuck.wait_for(2)
        await scene.payments.schedule(dispatched)
        started = await scene.dispatch()
        init = await start_init(scene, new, request(new))
        await scene.client.get_workflow_handle(init).result()
        running_meanwhile = stuck.running
        stuck.go_on.set()
        results = [await scene.result(each) for each in (*flood, dispatched)]

    assert started >= 1
    assert running_meanwhile == 2
    assert await scene.payments.status(new) == "SCHEDULED"
    assert results == ["PROCESSING"] * 6


class Stuck:
    """Executes payments once it is told to go on."""

    def __init__(self) -> None:
        self.running = 0
        self.go_on = asyncio.Event()
        self._changed = asyncio.Condition()

    async def execute(
        self, db: Connection, executions: Sequence[Execution]
    ) -> list[Executed | Refused]:
        async with self._changed:
            self.running += 1
            self._changed.notify_all()
        await self.go_on.wait()
        return await send_instructions(db, executions)

    async def wait_for(self, running: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self.running >= running)


def exec_activities(scene: TemporalScene, stuck: Stuck) -> ExecActivities:
    resources = scene.payments.app.resources
    return ExecActivities(
        pool=resources.pool,
        log=resources.log,
        execute=stuck.execute,
        notify=make_notifier(resources.settings, log=resources.log),
    )
