"""Workers of Temporal in this process: one per task queue, stopped together."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from penstock.base.aio import alongside, spawn
from penstock.integrations.temporal.errors import translated

# Workflows are loaded anew for each run in a sandbox; this package is not, as that takes seconds.
SANDBOX = SandboxedWorkflowRunner(
    restrictions=SandboxRestrictions.default.with_passthrough_modules("penstock")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """The workflows and activities of one task queue, and how many of each run at once."""

    task_queue: str
    workflows: Sequence[type]
    activities: Sequence[Callable[..., Any]]
    workflows_at_once: int
    activities_at_once: int


async def run_workers(
    client: Client, specs: Sequence[WorkerSpec], stop: asyncio.Event, *, grace: timedelta
) -> None:
    """Run a worker for each spec until `stop` is set; activities may then run on for `grace`.

    Raises TemporalFailed if one of them fails; the others are cancelled then.
    """
    with translated():
        workers = [_make(client, spec, grace=grace) for spec in specs]
        async with alongside(*(worker.run() for worker in workers)):
            await stop.wait()
            async with asyncio.TaskGroup() as group:
                for worker in workers:
                    spawn(group, worker.shutdown())


def _make(client: Client, spec: WorkerSpec, *, grace: timedelta) -> Worker:
    return Worker(
        client,
        task_queue=spec.task_queue,
        workflows=spec.workflows,
        activities=spec.activities,
        max_concurrent_workflow_tasks=spec.workflows_at_once,
        max_concurrent_activities=spec.activities_at_once,
        graceful_shutdown_timeout=grace,
        workflow_runner=SANDBOX,
    )
