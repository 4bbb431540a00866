"""The workers of payments on Temporal: which workflows and activities each task queue has."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

from temporalio.client import Client

from penstock.base.aio import alongside, supervise
from penstock.compose.payments import ExecutionSteps, make_notifier, send_instructions
from penstock.compose.temporal import TemporalSettings, connect_as_set, start_on, to_workflow
from penstock.contract import Resources, Service
from penstock.domains.payments.loader import ON_TEMPORAL
from penstock.domains.payments.steps import Steps
from penstock.domains.payments.temporal.dispatcher_activities import DispatcherActivities
from penstock.domains.payments.temporal.dispatcher_workflow import DispatcherWorkflow
from penstock.domains.payments.temporal.engine import read_execution
from penstock.domains.payments.temporal.exec_activities import ExecActivities
from penstock.domains.payments.temporal.exec_workflow import PaymentExecWorkflow
from penstock.domains.payments.temporal.init_activities import ContextActivities, InitActivities
from penstock.domains.payments.temporal.init_workflow import PaymentInitWorkflow
from penstock.domains.payments.temporal.models import (
    DISPATCH_QUEUE,
    DISPATCHER,
    EXEC_QUEUE,
    INIT_QUEUE,
    exec_workflow_id,
)
from penstock.domains.payments.temporal.schedules import (
    ItemTypeRow,
    ScheduleSync,
    SyncSchedule,
    list_item_types,
)
from penstock.integrations.temporal.inspect import count_open, count_workers
from penstock.integrations.temporal.schedule import (
    IntervalSchedule,
    describe_schedule,
    remove_schedule,
    sync_schedule,
)
from penstock.integrations.temporal.start import NewWorkflow, start_workflow
from penstock.integrations.temporal.worker import WorkerSpec, run_workers

WorkerName = Literal["dispatch", "init", "exec"]
WORKER_NAMES: tuple[WorkerName, ...] = ("dispatch", "init", "exec")


SHIPPED = ExecutionSteps(execute=send_instructions)


def worker_specs(
    resources: Resources,
    client: Client,
    names: Sequence[str] = WORKER_NAMES,
    *,
    steps: Steps,
    execution: ExecutionSteps = SHIPPED,
) -> list[WorkerSpec]:
    """Return the workers of these names; each has a queue of its own, so none starves another.

    `steps` are those of phase A, as the app has them: `app.api(Payments).steps`; `execution` are
    those of phase B, `app.api(ExecutionSteps)`.
    """
    made = {
        "dispatch": _dispatch(resources, client),
        "init": _initialise(resources, steps),
        "exec": _execute(resources, execution),
    }
    return [made[name] for name in names]


def temporal_service(
    resources: Resources,
    names: Sequence[str],
    *,
    steps: Steps,
    execution: ExecutionSteps = SHIPPED,
) -> Service:
    """Return the service that runs workers; it connects again whenever Temporal was lost."""

    async def run(stop: asyncio.Event) -> None:
        client = await connect_as_set(resources.section(TemporalSettings))
        schedules = ScheduleSync(pool=resources.pool, sync=make_sync(client), log=resources.log)
        specs = worker_specs(resources, client, names, steps=steps, execution=execution)
        follow = partial(
            supervise, partial(schedules.run, stop), name="schedules", log=resources.log
        )
        async with alongside(*([follow()] if "dispatch" in names else [])):
            await run_workers(client, specs, stop, grace=resources.settings.shutdown_grace)

    return Service(name="temporal", run=run)


async def sync_schedules(resources: Resources) -> list[dict[str, Any]]:
    """Bring all schedules in step once; return what was done with each. Raises TemporalFailed."""
    client = await connect_as_set(resources.section(TemporalSettings))
    async with resources.pool.acquire() as db:
        rows = await list_item_types(db)
    sync = make_sync(client)
    return [
        {
            "item_type": row.item_type,
            "engine": row.engine,
            "schedule": row.schedule_id if row.has_schedule else None,
            "interval_secs": row.interval.total_seconds() if row.has_schedule else None,
            "change": await sync(row),
        }
        for row in rows
    ]


async def read_status(resources: Resources) -> list[dict[str, Any]]:
    """Return how each item type is executed on Temporal. Raises TemporalFailed."""
    client = await connect_as_set(resources.section(TemporalSettings))
    async with resources.pool.acquire() as db:
        rows = await list_item_types(db)
    return [await _status(client, row) for row in rows]


async def start_execution(resources: Resources, payment_id: str) -> dict[str, Any]:
    """Start the execution of a payment that was dispatched, if Temporal does not have it any more.

    So it does if the workflow was terminated or has failed. Raises UnknownPayment, InvalidInput
    and TemporalFailed.
    """
    async with resources.pool.acquire() as db:
        execution = await read_execution(db, payment_id)
    client = await connect_as_set(resources.section(TemporalSettings))
    is_new = await start_workflow(client, to_workflow(execution), repeats_failed=True)
    return {
        "payment_id": payment_id,
        "workflow_id": execution.workflow_id,
        "task_queue": execution.task_queue,
        "change": "started" if is_new else "unchanged",
    }


async def _status(client: Client, row: ItemTypeRow) -> dict[str, Any]:
    schedule = await describe_schedule(client, row.schedule_id)
    next_at = None if schedule is None else next(iter(schedule.info.next_action_times), None)
    return {
        "item_type": row.item_type,
        "engine": row.engine,
        "enabled": row.is_enabled,
        "schedule": None if schedule is None else schedule.id,
        "paused": None if schedule is None else schedule.schedule.state.paused,
        "next_at": None if next_at is None else next_at.isoformat(),
        "dispatchers": await count_workers(client, DISPATCH_QUEUE),
        "executors": await count_workers(client, row.exec_task_queue),
        "open": await _count_open(client, row),
    }


async def _count_open(client: Client, row: ItemTypeRow) -> int | None:
    """Return how many executions of an item type are open, by their ids: types share workflows."""
    if row.engine not in ON_TEMPORAL:
        return None
    return await count_open(client, exec_workflow_id(row.item_type, ""))


def make_sync(client: Client, *, task_queue: str = DISPATCH_QUEUE) -> SyncSchedule:
    """Return what creates, changes or removes the schedule of an item type on a server."""

    async def sync(row: ItemTypeRow) -> str:
        if not row.has_schedule:
            return "removed" if await remove_schedule(client, row.schedule_id) else "unchanged"
        cycle = NewWorkflow(
            id=row.schedule_id, type=DISPATCHER, task_queue=task_queue, args=[row.item_type]
        )
        wanted = IntervalSchedule(id=row.schedule_id, interval=row.interval, workflow=cycle)
        return await sync_schedule(client, wanted)

    return sync


def _dispatch(resources: Resources, client: Client) -> WorkerSpec:
    activities = DispatcherActivities(
        pool=resources.pool,
        start=partial(start_on, client),
        meter=resources.meter,
        log=resources.log,
    )
    return WorkerSpec(
        task_queue=DISPATCH_QUEUE,
        workflows=[DispatcherWorkflow],
        activities=[
            activities.read_dispatch_config,
            activities.claim_batch,
            activities.dispatch_batch,
            activities.record_results,
        ],
        workflows_at_once=5,
        activities_at_once=10,
    )


def _initialise(resources: Resources, steps: Steps) -> WorkerSpec:
    activities = InitActivities(pool=resources.pool, steps=steps)
    return WorkerSpec(
        task_queue=INIT_QUEUE,
        workflows=[PaymentInitWorkflow],
        activities=[
            activities.validate_payment,
            activities.enrich_payment,
            activities.apply_rules,
            activities.persist_payment,
            activities.build_context,
            activities.determine_time,
            ContextActivities(pool=resources.pool).save_context_and_enqueue,
        ],
        workflows_at_once=100,
        activities_at_once=200,
    )


def _execute(resources: Resources, execution: ExecutionSteps) -> WorkerSpec:
    activities = ExecActivities(
        pool=resources.pool,
        log=resources.log,
        execute=execution.execute,
        notify=make_notifier(resources.settings, log=resources.log),
        post_process=execution.post_process,
    )
    return WorkerSpec(
        task_queue=EXEC_QUEUE,
        workflows=[PaymentExecWorkflow],
        activities=[
            activities.execute_payment,
            activities.post_process_payment,
            activities.send_notifications,
            activities.report_failure,
        ],
        workflows_at_once=100,
        activities_at_once=200,
    )
