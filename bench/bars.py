"""The bars, one case per group: each measures and returns rows of the table.

Those of the kernel are here, those of limits per key and of the domains in modules of their own.
"""

import asyncio
import contextlib
import re
import sys
from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from bench import (
    idle,
    key_limits,
    mail,
    measure,
    outbox,
    payment_rate,
    payments,
    slots,
    temporal,
    webhooks,
)
from bench.adapter import adapter
from bench.arrivals import busiest_second
from bench.figures import (
    Measurement,
    Row,
    at_least,
    at_most,
    best,
    detail,
    limit_row,
    middle_turn,
    named,
    ratio_row,
)
from bench.measure import Bench, Case, Stage, attempt, floats, rate
from bench.process import running

RATE: Final = 1000
BURST: Final = 100
RATE_PROCESSES: Final = 4
RATE_TAIL_SECONDS: Final = 0.5  # the processes do not stop in the same instant
BUSY: Final = (sys.executable, "-m", "bench.busy")
AIM: Final = 40_000


async def drain(bench: Bench) -> list[Row]:
    """One worker drains due no-op items: against each peer and against the bare SQL."""
    own = await measure.drain_rate(bench, bench.ours)
    limit = await measure.pgbench_limit(bench, bench.ours)
    bars = {"pgqueuer": at_least(4), "graphile-worker": at_least(1.5)}
    others = [await measure.drain_rate(bench, peer) for peer in bench.peers]
    return [
        *(ratio_row("drain", own, other, bar=bars.get(other.subject)) for other in others),
        ratio_row("drain", own, limit, bar=at_least(0.5)),
        limit_row("drain, what we are after", own, bar=at_least(AIM, f"≥ {AIM:,}/s")),
        limit_row(
            "WAL per item, claim to settled",
            detail(own, "wal_bytes_per_item", "B"),
            bar=at_most(450, "≤ 450 B"),
        ),
    ]


async def others(bench: Bench) -> list[Row]:
    """The same with as many future and finished items in the tables."""

    async def prepare(on: Stage) -> None:
        count = bench.sizes.others
        await on.fill("fill_finished", count, first=bench.sizes.items)
        await on.fill("fill_future", count, first=bench.sizes.items + count)

    name = f"drain with {bench.sizes.others:,} future and finished"
    return [await _beside_empty(bench, name, prepare=prepare)]


async def backlog(bench: Bench) -> list[Row]:
    """The same at the head of a much longer backlog."""
    size = bench.sizes.backlog
    name = f"drain at a backlog of {size:,}"
    return [await _beside_empty(bench, name, rounds=1, fill=size)]  # a fill takes minutes


async def snapshot(bench: Bench) -> list[Row]:
    """The same while another session holds a snapshot open, so that nothing can be vacuumed."""
    return [await _beside_empty(bench, "drain with a snapshot held open", hold=True)]


async def ordered(bench: Bench) -> list[Row]:
    """The same with per-key order, and no inversion."""
    empty = await measure.drain_rate(bench, bench.ours)
    items, keys = bench.sizes.items, bench.sizes.keys

    async def run(on: Stage) -> tuple[float, dict[str, float]]:
        await on.fill("fill_ordered", items, keys=keys)
        answer = await on.drain(items, whole=True, verb="drain_ordered", keys=keys)
        return rate(answer), answer

    own = await attempt(
        bench, bench.ours, what=f"drain ordered by {keys:,} keys", unit="/s", run=run
    )
    inversions = detail(own, "inversions", "")
    return [
        ratio_row(own.what, own, named(empty, "unordered"), bar=at_least(0.5)),
        limit_row("inversions of order", inversions, bar=at_most(0, "0")),
    ]


async def rate_limit(bench: Bench) -> list[Row]:
    """A lane with a rate limit under several worker processes: exact, and used up."""
    return _rate_rows([await _rate_run(bench)])


async def rate_busy(bench: Bench) -> list[Row]:
    """The same, many times, while something else takes half of a core."""
    async with running(BUSY, {}, ready=re.compile(rb"busy")):
        return _rate_rows([await _rate_run(bench) for _ in range(bench.sizes.rate_runs)])


async def enqueue(bench: Bench) -> list[Row]:
    """Bulk enqueue with idempotency keys."""
    own = await measure.enqueue_rate(bench, bench.ours)
    others = [await measure.enqueue_rate(bench, peer) for peer in bench.peers]
    return _against_best("bulk enqueue", own, others, lowest=False)


async def latency(bench: Bench) -> list[Row]:
    """From enqueue commit to handler start on an idle system."""
    own = await measure.latency(bench, bench.ours)
    others = [await measure.latency(bench, peer) for peer in bench.peers]
    return [
        *_against_best("latency p50", own, others, lowest=True),
        limit_row("latency p99", detail(own, "p99", "ms"), bar=at_most(20, "≤ 20 ms")),
    ]


async def idle_up(bench: Bench) -> list[Row]:
    """What an idle `penstock up` costs."""
    statements, memory = await idle.measure_idle(bench)
    return [
        limit_row("idle `up`: statements", statements, bar=at_most(2, "≤ 2 /s")),
        limit_row("idle `up`: memory", memory, bar=at_most(200, "≤ 200 MB")),
    ]


CASES: Final[dict[str, Case]] = {
    "drain": drain,
    "others": others,
    "backlog": backlog,
    "snapshot": snapshot,
    "ordered": ordered,
    "rate": rate_limit,
    "rate_busy": rate_busy,
    "enqueue": enqueue,
    "latency": latency,
    "idle": idle_up,
    **key_limits.CASES,
    **slots.CASES,
    **webhooks.CASES,
    **mail.CASES,
    **outbox.CASES,
    **payments.CASES,
    **payment_rate.CASES,
    **temporal.CASES,
}


async def _beside_empty(
    bench: Bench,
    name: str,
    *,
    rounds: int | None = None,
    fill: int | None = None,
    prepare: Callable[[Stage], Awaitable[None]] | None = None,
    hold: bool = False,
) -> Row:
    """Drain the empty case and the hard case in turns."""
    items = bench.sizes.items

    async def run(on: Stage) -> tuple[float, dict[str, float]]:
        if prepare is not None:
            await prepare(on)
        await on.fill("fill", fill or items)
        async with _snapshot(on) if hold else contextlib.nullcontext():
            # With future items or a longer backlog there is always something left unsettled.
            answer = await on.drain(items, whole=fill is None and prepare is None)
        return rate(answer), answer

    empty: list[Measurement] = []
    hard: list[Measurement] = []
    for _ in range(rounds or bench.sizes.rounds):
        empty.append(await measure.drain_rate(bench, bench.ours))
        hard.append(await attempt(bench, bench.ours, what=name, unit="/s", run=run))
    ours, theirs = middle_turn(hard, empty)
    return ratio_row(name, ours, named(theirs, "empty case"), bar=at_least(0.9))


@contextlib.asynccontextmanager
async def _snapshot(on: Stage) -> AsyncIterator[None]:
    """Hold a snapshot open in another session."""
    async with (
        on.bench.server.connect(on.database) as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        await connection.fetchval("SELECT 1")  # the first query takes the snapshot
        yield


async def _rate_run(bench: Bench) -> Measurement:
    """Return the starts in the busiest second of one run."""
    seconds = bench.sizes.rate_seconds

    async def run(on: Stage) -> tuple[float, dict[str, float]]:
        await on.child.call("limit_rate", per_second=RATE, burst=BURST)
        await on.fill("fill", int(RATE * (seconds + 5)) + BURST)
        starts = await _starts(on, seconds=seconds)
        return float(busiest_second(starts)), {
            "starts": len(starts),
            "used": used_share(starts, seconds=seconds),
        }

    what = f"most starts in any second, {RATE_PROCESSES} processes, {seconds:g} s"
    return await attempt(bench, bench.ours, what=what, unit="", run=run)


def _rate_rows(runs: list[Measurement]) -> list[Row]:
    """Hold the worst of some runs against the bars; a run that failed is the worst."""
    fullest = max(runs, key=lambda run: float("inf") if run.value is None else run.value)
    least = min(runs, key=lambda run: run.detail.get("used", -1.0))
    times = f", worst of {len(runs)} runs" if len(runs) > 1 else ""
    most = f"≤ {RATE:,} + {BURST}"
    return [
        limit_row(f"{fullest.what}{times}", fullest, bar=at_most(RATE + BURST, most)),
        limit_row(
            f"share of the allowed rate used{times}",
            detail(least, "used", ""),
            bar=at_least(0.98),
        ),
    ]


async def _starts(on: Stage, *, seconds: float) -> list[float]:
    """Run several worker processes on one database; return all start instants in order."""
    ours = on.bench.ours
    assert ours.launch is not None
    place = on.bench.server.place(on.database)
    on.bench.report.doing(f"{ours.name}: {RATE_PROCESSES} processes for {seconds:g} s")
    async with contextlib.AsyncExitStack() as stack:
        children = [
            await stack.enter_async_context(adapter(f"{ours.name}-{n}", ours.launch))
            for n in range(RATE_PROCESSES)
        ]
        for child in children:
            await child.call("setup", place=place, install=False)
        answers = await asyncio.gather(*(c.call("starts", seconds=seconds) for c in children))
    return sorted(start for answer in answers for start in floats(answer, "starts"))


def used_share(starts: list[float], *, seconds: float) -> float:
    """Return the share of the allowed rate that was used in the run.

    The burst is taken off: it is allowed, but using it must not hide an idle stretch.
    """
    if not starts:
        return 0.0
    span = seconds - RATE_TAIL_SECONDS
    count = bisect_left(starts, starts[0] + span)
    return (count - BURST) / (RATE * span)


def _against_best(
    name: str, own: Measurement, others: list[Measurement], *, lowest: bool
) -> list[Row]:
    champion = best(others, lowest=lowest)
    bar = at_most(1.0) if lowest else at_least(1.3)
    rest = [other for other in others if other is not champion]
    return [
        ratio_row(f"{name} (best peer)", own, champion, bar=bar),
        *(ratio_row(name, own, other, bar=None) for other in rest),
    ]
