"""A worker that dies with kill -9 after its claim, or after the starts that it has not recorded.

`python -m tests.fault.temporal_worker worker|dispatch LABEL DSN TARGET QUEUE`; the label is
`after_claim` or `after_start`, or `in_preload` for a worker: while it reads the contexts.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from penstock import Penstock
from penstock.compose import mail, outbox, payments, webhooks
from penstock.compose.temporal import start_on
from penstock.contract import Resources, Runtime
from penstock.domains.payments.loader import ON_TEMPORAL
from penstock.domains.payments.runtime import build as build_domain
from penstock.domains.payments.temporal.dispatcher_activities import DispatcherActivities
from penstock.domains.payments.temporal.dispatcher_workflow import DispatcherWorkflow
from penstock.domains.payments.temporal.engine import NewExecution, NotStarted, TemporalEngine
from penstock.integrations.temporal.client import connect
from penstock.integrations.temporal.worker import WorkerSpec, run_workers
from penstock.kernel.item import Item
from penstock.postgres.pool import Connection


async def main(  # noqa: PLR0917  As argv.
    kind: str, label: str, dsn: str, target: str, queue: str
) -> None:
    client = await connect(target)

    async def start_and_die(executions: Sequence[NewExecution]) -> list[NotStarted | None]:
        if label == "after_start":
            await start_on(client, executions)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("it is dead")

    async def die(_db: Connection, _items: Sequence[Item[Any]]) -> Sequence[Any]:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("it is dead")

    def build(resources: Resources) -> Runtime:
        engine = TemporalEngine(
            pool=resources.pool, clock=resources.clock, start=start_and_die, log=resources.log
        )
        runtime = build_domain(resources, engines=dict.fromkeys(ON_TEMPORAL, engine.handle_many))
        if label != "in_preload":
            return runtime
        return replace(runtime, kinds=[replace(each, preload=die) for each in runtime.kinds])

    domains = [
        webhooks.DOMAIN,
        mail.DOMAIN,
        outbox.DOMAIN,
        replace(payments.DOMAIN, build=build),
    ]
    async with Penstock(dsn=dsn, domains=domains) as app:
        if kind == "worker":
            await app.run_worker(asyncio.Event(), lanes=["payment"])
            return
        resources = app.resources
        activities = DispatcherActivities(
            pool=resources.pool, start=start_and_die, meter=resources.meter, log=resources.log
        )
        spec = WorkerSpec(
            task_queue=queue,
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
        await run_workers(client, [spec], asyncio.Event(), grace=resources.settings.shutdown_grace)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
