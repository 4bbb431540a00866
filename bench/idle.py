"""What an idle `penstock up` costs: statements per second and memory of our processes."""

import asyncio
import os
from typing import Final

import psutil

from bench import ours
from bench.environment import ROOT
from bench.figures import Measurement
from bench.measure import Bench

READY_SECONDS_MAX: Final = 60.0
SETTLE_SECONDS: Final = 5.0  # what happens once at start is not idling
EXIT_SECONDS_MAX: Final = 20.0
MB: Final = 1024 * 1024
NAME: Final = "bench_idle"


async def measure_idle(bench: Bench) -> tuple[Measurement, Measurement]:
    """Start `ours.UP` on a fresh database, leave it alone, and watch it."""
    statements, memory, reason = None, None, ""
    try:
        statements, memory = await _watch(bench, ours.UP)
    except (TimeoutError, RuntimeError) as exc:
        reason = f"failed: {exc or 'not ready in time'}"
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
        process = await asyncio.create_subprocess_exec(
            *command,
            env=os.environ
            | {
                "PENSTOCK_DATABASE_URL": bench.server.dsn(database),
                "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
            }
            | ours.UP_VARIABLES,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        reader: asyncio.Task[bytes] | None = None
        try:
            assert process.stdout is not None
            await asyncio.wait_for(_ready(process.stdout), READY_SECONDS_MAX)
            reader = asyncio.ensure_future(process.stdout.read())  # a full pipe would stop it
            bench.report.doing("penstock up: idle")
            await asyncio.sleep(SETTLE_SECONDS)
            before = bench.server.statements(database)
            await asyncio.sleep(bench.sizes.idle_seconds)
            after = bench.server.statements(database)
            return (after - before) / bench.sizes.idle_seconds, _resident(process.pid) / MB
        finally:
            if reader is not None:
                reader.cancel()
            await _end(process)


async def _ready(stdout: asyncio.StreamReader) -> None:
    said: list[bytes] = []
    while line := await stdout.readline():
        if b"http" in line:
            return
        said.append(line)
    last = said[-1].decode(errors="replace").strip() if said else "nothing was printed"
    raise RuntimeError(f"`up` ended: {last}")


def _resident(pid: int) -> int:
    process = psutil.Process(pid)
    return sum(p.memory_info().rss for p in [process, *process.children(recursive=True)])


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), EXIT_SECONDS_MAX)
    except TimeoutError:
        process.kill()
        await process.wait()


def _measurement(what: str, value: float | None, *, unit: str, reason: str) -> Measurement:
    return Measurement(subject="penstock", what=what, value=value, unit=unit, reason=reason)
