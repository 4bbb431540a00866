"""The workers of payments on Temporal: which workflows and activities each task queue has."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

from temporalio.client import Client

from penstock.base.aio import alongside, supervise
from penstock.compose.payments import make_notifier, send_instructions
from penstock.compose.temporal import TemporalSettings, connect_as_set, start_on
from penstock.contract import Resources, Service
from penstock.domains.payments.steps import Steps
from penstock.domains.payments.temporal.dispatcher_activities import DispatcherActivities
from penstock.domains.payments.temporal.dispatcher_workflow import DispatcherWorkflow
from penstock.domains.payments.temporal.exec_activities import ExecActivities
from penstock.domains.payments.temporal.exec_workflow import PaymentExecWorkflow
from penstock.domains.payments.temporal.init_activities import ContextActivities, InitActivities
from penstock.domains.payments.temporal.init_workflow import PaymentInitWorkflow
from penstock.domains.payments.temporal.models import (
    DISPATCH_QUEUE,
    DISPATCHER,
    EXEC_QUEUE,
    INIT_QUEUE,
)
from penstock.domains.payments.temporal.schedules import (
    ItemTypeRow,
    KeepSchedule,
    ScheduleKeeper,
    list_item_types,
)
from penstock.integrations.temporal.inspect import count_open, count_workers
from penstock.integrations.temporal.schedule import (
    IntervalSchedule,
    describe_schedule,
    keep_schedule,
    remove_schedule,
)
from penstock.integrations.temporal.start import NewWorkflow
from penstock.integrations.temporal.worker import WorkerSpec, run_workers

WorkerName = Literal["dispatch", "init", "exec"]
WORKER_NAMES: tuple[WorkerName, ...] = ("dispatch", "init", "exec")


def worker_specs(
    resources: Resources, client: Client, names: Sequence[str] = WORKER_NAMES, *, steps: Steps
) -> list[WorkerSpec]:
    """Return the workers of these names; each has a queue of its own, so none starves another.

    `steps` are those of phase A, as the app has them: `app.api(Payments).steps`.
    """
    made = {
        "dispatch": _dispatch(resources, client),
        "init": _initialise(resources, steps),
        "exec": _execute(resources),
    }
    return [made[name] for name in names]


def temporal_service(resources: Resources, names: Sequence[str], *, steps: Steps) -> Service:
    """Return the service that runs workers; it connects anew whenever Temporal was lost."""

    async def run(stop: asyncio.Event) -> None:
        client = await connect_as_set(resources.section(TemporalSettings))
        keeper = ScheduleKeeper(pool=resources.pool, keep=make_keep(client), log=resources.log)
        specs = worker_specs(resources, client, names, steps=steps)
        keep = partial(supervise, partial(keeper.run, stop), name="schedules", log=resources.log)
        async with alongside(*([keep()] if "dispatch" in names else [])):
            await run_workers(client, specs, stop, grace=resources.settings.shutdown_grace)

    return Service(name="temporal", run=run)


async def keep_schedules(resources: Resources) -> list[dict[str, Any]]:
    """Bring all schedules in step once; return what was done with each. Raises TemporalFailed."""
    client = await connect_as_set(resources.section(TemporalSettings))
    async with resources.pool.acquire() as db:
        rows = await list_item_types(db)
    keep = make_keep(client)
    return [
        {
            "item_type": row.item_type,
            "engine": row.engine,
            "schedule": row.schedule_id if row.has_schedule else None,
            "interval_secs": row.interval.total_seconds() if row.has_schedule else None,
            "change": await keep(row),
        }
        for row in rows
    ]


async def read_status(resources: Resources) -> list[dict[str, Any]]:
    """Return how each item type is executed on Temporal. Raises TemporalFailed."""
    client = await connect_as_set(resources.section(TemporalSettings))
    async with resources.pool.acquire() as db:
        rows = await list_item_types(db)
    return [await _status(client, row) for row in rows]


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
        "open": await count_open(client, row.exec_workflow_type),
    }


def make_keep(client: Client, *, task_queue: str = DISPATCH_QUEUE) -> KeepSchedule:
    """Return what keeps the schedule of an item type on a server, or removes it."""

    async def keep(row: ItemTypeRow) -> str:
        if not row.has_schedule:
            return "removed" if await remove_schedule(client, row.schedule_id) else "unchanged"
        cycle = NewWorkflow(
            id=row.schedule_id, type=DISPATCHER, task_queue=task_queue, args=[row.item_type]
        )
        wanted = IntervalSchedule(id=row.schedule_id, interval=row.interval, workflow=cycle)
        return await keep_schedule(client, wanted)

    return keep


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


def _execute(resources: Resources) -> WorkerSpec:
    activities = ExecActivities(
        pool=resources.pool,
        log=resources.log,
        execute=send_instructions,
        notify=make_notifier(resources.settings, log=resources.log),
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
