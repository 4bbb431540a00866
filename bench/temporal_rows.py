"""What payments that wait cost Temporal's database: as sleeping workflows, and dispatched.

Rows of open executions are those that the server works with; all rows and bytes include what it
keeps of closed ones.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

from bench.dispatch import WHO, DispatchFailed
from bench.figures import Measurement, Row, at_least, detail, ratio_row
from bench.measure import Bench
from bench.sleeper import SLEEPER, Sleeper
from bench.temporal_postgres import temporal_on_postgres
from bench.temporal_server import Running, Temporal, temporal, temporal_workers
from bench.temporal_store import Held
from bench.tried import Figures, tried
from penstock import Penstock
from penstock.base import log
from penstock.base.aio import alongside
from penstock.compose import payments
from penstock.compose.domains import BUILT_IN
from penstock.compose.temporal import TemporalSettings
from penstock.compose.temporal_workers import make_sync, worker_specs
from penstock.domains.payments.lanes import LANE
from penstock.domains.payments.loader import Engine
from penstock.domains.payments.payment import NewPayment, Party
from penstock.domains.payments.schedule import Payments
from penstock.domains.payments.temporal.schedules import list_item_types
from penstock.integrations.temporal.start import NewWorkflow, start_workflows
from penstock.integrations.temporal.worker import WorkerSpec
from penstock.kernel.lane import set_lane

WAITING: Final = 2_000
PER_SECOND: Final = 5
QUICK_SECONDS: Final = 30
FULL_SECONDS: Final = 660  # 400 until the last has left, and what is kept of them.
ASLEEP_SECONDS: Final = 240.0  # Until the first wakes up; all sleep by then, on a quiet machine.
QUEUE: Final = "bench"
SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """A way to dispatch, and how Temporal's server is configured for it."""

    name: str
    engine: Engine
    policy: Mapping[str, Any]
    dynamic_config: Mapping[str, int] = field(default_factory=dict[str, int])


# A cycle of the schedule each second.
BY_CYCLES: Final[dict[str, Any]] = {"batch_size": PER_SECOND, "dispatch_interval": SECOND}
# All have the same pace. The how-to recommends the server's setting of the last one.
WAYS: Final = (
    _Way(
        name="engine temporal",
        engine="temporal",
        policy={"rate": PER_SECOND, "burst": 1, "dispatch_interval": timedelta(0)},
    ),
    _Way(name="engine temporal_schedule", engine="temporal_schedule", policy=BY_CYCLES),
    _Way(
        name="engine temporal_schedule, short history",
        engine="temporal_schedule",
        policy=BY_CYCLES,
        dynamic_config={"limit.historyCount.suggestContinueAsNew": 25},
    ),
)
WITHOUT_JITTER: Final[dict[str, Any]] = {"jitter_window": timedelta(0)}
COUNT_EXECUTED: Final = "SELECT count(*) FROM penstock.payment WHERE status <> 'SCHEDULED'"
SET_ENGINE: Final = "UPDATE penstock.payment_item_type SET engine = $1 WHERE item_type = 'PAYMENT'"


async def rows(bench: Bench) -> list[Row]:
    """Payments that wait as sleeping workflows on Temporal, against dispatched ones."""
    return await _rows(bench, partial(temporal, keeps_file=True), "on Temporal")


async def rows_on_postgres(bench: Bench) -> list[Row]:
    """The same on a server of Temporal that stores in PostgreSQL."""
    return await _rows(bench, temporal_on_postgres, "on Temporal with PostgreSQL")


async def _rows(bench: Bench, running: Running, where: str) -> list[Row]:
    sleeping = await tried(
        bench,
        partial(_sleeping, bench, running),
        what="rows of open executions, at the peak",
        unit="rows",
        subject="sleeping workflows",
    )
    found: list[Row] = []
    for way in WAYS:
        dispatched = await tried(
            bench,
            partial(_dispatched, bench, running, way),
            what="rows of open executions, at the peak",
            unit="rows",
            subject=f"dispatched, {way.name}",
        )
        found += _compared(sleeping, dispatched, where=where)
    return found


def _compared(sleeping: Measurement, dispatched: Measurement, *, where: str) -> list[Row]:
    waiting = f"{WAITING:,} payments asleep {where}"
    return [
        ratio_row(f"{waiting}: open rows", sleeping, dispatched, bar=at_least(200)),
        *(
            ratio_row(
                f"{waiting}: {name}", detail(sleeping, key, unit), detail(dispatched, key, unit),
                bar=None,
            )
            for key, unit, name in (
                ("all_rows", "rows", "all rows at the end"),
                ("bytes", "B", "bytes at the end"),
            )
        ),
    ]  # fmt: skip


async def _sleeping(bench: Bench, running: Running) -> Figures:
    """Start one sleeping workflow for each payment, and let them wake up at the pace."""
    spec = WorkerSpec(
        task_queue=QUEUE,
        workflows=[Sleeper],
        activities=[],
        workflows_at_once=100,
        activities_at_once=1,
    )
    async with running() as on, temporal_workers(on, [spec]):
        bench.report.doing("sleeping workflows", WAITING)
        batch = [
            NewWorkflow(
                id=f"sleep-{number}",
                type=SLEEPER,
                task_queue=QUEUE,
                args=[ASLEEP_SECONDS + number / PER_SECOND],
            )
            for number in range(WAITING)
        ]
        began = time.monotonic()
        await start_workflows(on.client, batch)
        while (asleep := await on.store.count_timers()) < WAITING:
            bench.report.progress(asleep)
            if time.monotonic() > began + ASLEEP_SECONDS:
                break  # The first wake up: what is counted is less than it could be.
            await asyncio.sleep(1)
        return (await _watched(bench, on)).figures(asleep=asleep)


async def _dispatched(bench: Bench, running: Running, way: _Way) -> Figures:
    """Schedule the payments as rows, and let them be dispatched at the pace."""
    async with (
        running(dynamic_config=way.dynamic_config) as on,
        dispatching(bench, way.engine, on, count=WAITING, policy=way.policy) as app,
    ):
        seen = await _watched(bench, on)
        executed = await app.pool.fetchval(COUNT_EXECUTED)
    if not executed:
        raise DispatchFailed("no payment was executed")
    return seen.figures(executed=executed)


@asynccontextmanager
async def dispatching(
    bench: Bench, engine: Engine, on: Temporal, *, count: int, policy: Mapping[str, Any]
) -> AsyncGenerator[Penstock]:
    """Schedule payments that are due at once, and run all workers that the engine needs."""
    log.configure("error")  # The rail is faster than the last step, which is a warning.
    chosen = TemporalSettings(temporal_target=on.server.target)
    on_temporal = replace(payments.DOMAIN, build=partial(payments.build, temporal=chosen))
    domains = [on_temporal if each is payments.DOMAIN else each for each in BUILT_IN]
    async with (
        bench.server.database("bench_temporal") as database,
        Penstock(bench.server.dsn(database), domains=domains) as app,
    ):
        async with app.pool.acquire() as db:
            await set_lane(db, LANE, who=WHO, **{**WITHOUT_JITTER, **policy})
            await db.execute(SET_ENGINE, engine)
            sync = make_sync(on.client)
            for row in await list_item_types(db):
                await sync(row)
        await app.api(Payments).schedule_many([_payment(number) for number in range(count)])
        specs = worker_specs(
            app.resources, on.client, ["dispatch", "exec"], steps=app.api(Payments).steps
        )
        async with (
            temporal_workers(on, specs),
            alongside(app.run_worker(asyncio.Event(), lanes=[LANE])),
        ):
            yield app


def _payment(number: int) -> NewPayment:
    return NewPayment(
        payment_id=f"p-{number}",
        amount="12.50",
        currency="EUR",
        debtor=Party(name="Ada", iban="DE89370400440532013000"),
        creditor=Party(name="Bob", iban="FR1420041010050500013M02606"),
        participant_id=f"participant-{number % 100}",
        rail_type="simulator",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watched:
    """What the database held at its peak, and at the end."""

    seconds: int
    open_rows: list[int]
    last: Held

    def figures(self, **more: float) -> Figures:
        return float(max(self.open_rows)), {
            "median_open_rows": sorted(self.open_rows)[len(self.open_rows) // 2],
            "all_rows": self.last.all_rows,
            "bytes": self.last.file_bytes,
            "seconds": self.seconds,
            **more,
        }


async def _watched(bench: Bench, on: Temporal) -> _Watched:
    """Look at the database each second."""
    seconds = FULL_SECONDS if bench.sizes.rounds > 1 else QUICK_SECONDS
    bench.report.doing("seconds watched", seconds)
    samples: list[Held] = []
    for second in range(seconds):
        await asyncio.sleep(1)
        samples.append(await on.store.held())
        bench.report.progress(second)
    return _Watched(
        seconds=seconds, open_rows=[each.open_rows for each in samples], last=samples[-1]
    )
