"""What an idle `penstock up` costs: statements per second and memory of our processes."""

import asyncio
from typing import Final

import psutil

from bench import ours
from bench.figures import Measurement
from bench.measure import Bench
from bench.process import NotReady, listening

SETTLE_SECONDS: Final = 5.0  # what happens once at start is not idling
MB: Final = 1024 * 1024
NAME: Final = "bench_idle"


async def measure_idle(bench: Bench) -> tuple[Measurement, Measurement]:
    """Start `ours.UP` on a fresh database, leave it alone, and watch it."""
    statements, memory, reason = None, None, ""
    try:
        statements, memory = await _watch(bench, ours.UP)
    except NotReady as exc:
        reason = f"failed: {exc}"
    report = bench.report
    return (
        report.measured(_measurement("idle statements", statements, unit="/s", reason=reason)),
        report.measured(_measurement("idle memory", memory, unit="MB", reason=reason)),
    )


async def _watch(bench: Bench, command: tuple[str, ...]) -> tuple[float, float]:
    async with bench.server.database(NAME) as database:
        async with bench.server.connect() as connection:
            # Counted in the server's log: transactions would hide statements.
            await connection.execute(f"ALTER DATABASE {database} SET log_statement = 'all'")
        variables = {"PENSTOCK_DATABASE_URL": bench.server.dsn(database)} | ours.UP_VARIABLES
        async with listening(command, variables) as up:
            bench.report.doing("penstock up: idle")
            await asyncio.sleep(SETTLE_SECONDS)
            before = bench.server.statements(database)
            await asyncio.sleep(bench.sizes.idle_seconds)
            after = bench.server.statements(database)
            return (after - before) / bench.sizes.idle_seconds, _resident(up.pid) / MB


def _resident(pid: int) -> int:
    process = psutil.Process(pid)
    return sum(p.memory_info().rss for p in [process, *process.children(recursive=True)])


def _measurement(what: str, value: float | None, *, unit: str, reason: str) -> Measurement:
    return Measurement(subject="penstock", what=what, value=value, unit=unit, reason=reason)
