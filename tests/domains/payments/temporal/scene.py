"""Payments on a real Temporal server: an app, its workers, and what Temporal says about them.

Many tests share the server, so each has task queues and payment ids of its own.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowExecution

from penstock.base.aio import alongside
from penstock.base.clock import FakeClock
from penstock.compose import payments
from penstock.compose.temporal import TemporalSettings
from penstock.compose.temporal_workers import WorkerName, worker_specs
from penstock.contract import Resources, Runtime
from penstock.domains.payments.execute import PostProcess, post_process_nothing
from penstock.domains.payments.lanes import LANE
from penstock.domains.payments.schedule import Payments
from penstock.domains.payments.steps import Steps
from penstock.integrations.temporal.client import connect
from penstock.integrations.temporal.start import NewWorkflow, start_workflow
from penstock.integrations.temporal.worker import WorkerSpec, run_workers
from tests.domains.outbox.sending.ledger import Ledger
from tests.domains.payments.executing.scene import Scene, opened_scene
from tests.fault.waiting import POLL_SECONDS, pause
from tests.integrations.temporal.scene import fresh

PATIENCE = 60.0  # Seconds that a test waits for Temporal: a busy machine needs some.
SECOND = timedelta(seconds=1)

LEFT = """
SELECT EXISTS (SELECT FROM penstock.ready JOIN penstock.payment ON item_id = id)
    OR EXISTS (SELECT FROM penstock.lease)
"""


@dataclass(slots=True, kw_only=True)
class TemporalScene:
    """An open app whose payments are executed on Temporal."""

    payments: Scene
    client: Client
    exec_queue: str
    dispatch_queue: str
    init_queue: str
    prefix: str

    def ids(self, count: int) -> list[str]:
        """Return ids that no other test uses."""
        return [f"{self.prefix}-{number}" for number in range(count)]

    async def use(self, engine: str) -> None:
        """Choose the engine of payments, with this test's own task queue."""
        await self.payments.app.pool.execute(
            "UPDATE penstock.payment_item_type SET engine = $1, exec_task_queue = $2",
            engine,
            self.exec_queue,
        )

    async def add_item_type(self, item_type: str, *, workflow: str, queue: str) -> None:
        """Add an item type that a schedule dispatches."""
        async with self.payments.app.pool.acquire() as db:
            await self.payments.app.create_lane(db, item_type.lower(), who="test", owner="payments")
            await db.execute(
                "INSERT INTO penstock.payment_item_type"
                " (item_type, lane, engine, exec_workflow_type, exec_task_queue)"
                " VALUES ($1, $2, 'temporal_schedule', $3, $4)",
                item_type,
                item_type.lower(),
                workflow,
                queue,
            )

    @asynccontextmanager
    async def workers(self, *names: WorkerName, steps: Steps | None = None) -> AsyncGenerator[None]:
        """Run workers of Temporal while the body runs; with the steps of the app, or others."""
        app = self.payments.app
        specs = worker_specs(
            app.resources,
            self.client,
            names,
            steps=steps or app.api(Payments).steps,
            execution=app.api(payments.ExecutionSteps),
        )
        async with self.running([self.own(spec) for spec in specs]):
            yield

    def own(self, spec: WorkerSpec) -> WorkerSpec:
        """Return a worker with the queue of this test."""
        queues = {
            "dispatch-task-queue": self.dispatch_queue,
            "payment-exec-task-queue": self.exec_queue,
            "payment-init-task-queue": self.init_queue,
        }
        return replace(spec, task_queue=queues.get(spec.task_queue, spec.task_queue))

    @asynccontextmanager
    async def running(self, specs: Sequence[WorkerSpec]) -> AsyncGenerator[None]:
        stop = asyncio.Event()
        async with (
            asyncio.timeout(PATIENCE),
            alongside(run_workers(self.client, specs, stop, grace=SECOND)),
        ):
            yield
            stop.set()

    async def claim_now(self) -> None:
        """Claim by the real clock, with a worker that runs until no payment is left to claim."""
        app, stop = self.payments.app, asyncio.Event()
        async with asyncio.timeout(PATIENCE), alongside(app.run_worker(stop, lanes=[LANE])):
            while await app.pool.fetchval(LEFT):
                await pause(POLL_SECONDS)
            stop.set()

    async def start(self, payment_id: str, *, context: str | None = None) -> None:
        """Start the workflow of a payment, whoever else may execute it."""
        context = context or await self.context(payment_id)
        execution = NewWorkflow(
            id=f"exec-payment-{payment_id}",
            type="PaymentExecWorkflow",
            task_queue=self.exec_queue,
            args=[payment_id, context],
        )
        await start_workflow(self.client, execution)

    async def context(self, payment_id: str) -> str:
        """Return the context of a payment as it is stored."""
        text: str = await self.payments.app.pool.fetchval(
            "SELECT context_json::text FROM penstock.payment_exec_context WHERE payment_id = $1",
            payment_id,
        )
        return text

    async def dispatch(self, item_type: str = "PAYMENT") -> int:
        """Run one cycle of the dispatcher, as the schedule does; return how many were started."""
        handle = await self.begin_dispatch(item_type)
        result: int = await self.client.get_workflow_handle(handle).result()
        return result

    async def begin_dispatch(self, item_type: str = "PAYMENT") -> str:
        cycle = NewWorkflow(
            id=fresh("dispatch"),
            type="DispatcherWorkflow",
            task_queue=self.dispatch_queue,
            args=[item_type],
        )
        await start_workflow(self.client, cycle)
        return cycle.id

    async def result(self, payment_id: str) -> Any:
        """Return the result of a payment's workflow."""
        return await self.client.get_workflow_handle(f"exec-payment-{payment_id}").result()

    async def runs(self, payment_id: str, item_type: str = "payment") -> list[WorkflowExecution]:
        """Return all runs of a payment's workflow, from Temporal's own list, once there is one."""
        query = f"WorkflowId = 'exec-{item_type}-{payment_id}'"
        async with asyncio.timeout(PATIENCE):
            while not (found := [each async for each in self.client.list_workflows(query)]):
                await pause(POLL_SECONDS)
        return found

    async def is_started(self, payment_id: str) -> bool:
        """Return whether Temporal's list has a workflow of the payment."""
        query = f"WorkflowId = 'exec-payment-{payment_id}'"
        return bool([each async for each in self.client.list_workflows(query)])

    async def history(self, workflow_id: str) -> list[HistoryEvent]:
        """Return the history of a workflow."""
        handle = self.client.get_workflow_handle(workflow_id)
        return [each async for each in handle.fetch_history_events()]

    async def start_delay(self, payment_id: str) -> timedelta:
        """Return the delay with which a payment's workflow was started."""
        started = (await self.history(f"exec-payment-{payment_id}"))[0]
        attributes = started.workflow_execution_started_event_attributes
        return attributes.first_workflow_task_backoff.ToTimedelta()

    async def start_time(self, payment_id: str) -> datetime:
        """Return when Temporal runs a payment's workflow for the first time."""
        started = (await self.history(f"exec-payment-{payment_id}"))[0]
        started_at = started.event_time.ToDatetime(tzinfo=UTC)
        return started_at + await self.start_delay(payment_id)


def activities_of(history: Sequence[HistoryEvent]) -> list[str]:
    """Return the activities that a history has scheduled, in their order."""
    return [
        event.activity_task_scheduled_event_attributes.activity_type.name
        for event in history
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    ]


@asynccontextmanager
async def opened_on_temporal(
    dsn: str,
    clock: FakeClock,
    ledger: Ledger,
    *,
    target: str,
    post_process: PostProcess = post_process_nothing,
) -> AsyncGenerator[TemporalScene]:
    """Open an app that starts its workflows on a server."""
    chosen = TemporalSettings(temporal_target=target)

    def build(resources: Resources) -> Runtime:
        return payments.build(resources, temporal=chosen, post_process=post_process)

    domain = replace(payments.DOMAIN, build=build)
    async with opened_scene(dsn, clock, ledger, domain) as opened:
        scene = TemporalScene(
            payments=opened,
            client=await connect(target),
            exec_queue=fresh("exec"),
            dispatch_queue=fresh("dispatch"),
            init_queue=fresh("init"),
            prefix=fresh("p"),
        )
        await opened.set_lane(jitter_window=timedelta(0), dispatch_interval=timedelta(0))
        await scene.use("temporal")
        yield scene
