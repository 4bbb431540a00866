"""How one subject is measured: a fresh database, its own process, one verb after another.

Every function returns a `Measurement`; a subject that is missing or fails yields one that says why.
"""

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from bench import machine, pgbench
from bench.adapter import Adapter, AdapterFailed, adapter
from bench.figures import OTHERS, Measurement, Row
from bench.registry import Subject
from bench.report import Report
from bench.server import Server

DRAIN_SECONDS_MAX: Final = 240.0  # a drain that takes longer is judged by what it did until then
QUIET_LOOK_SECONDS: Final = 0.5
QUIET_PERCENT: Final = 10.0
P99: Final = 98  # the index of the 99th percentile among 99 cut points


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is measured."""

    items: int
    others: int
    backlog: int
    keys: int
    instructions: int
    participants: int
    latency_samples: int
    rate_seconds: float
    rate_runs: int
    idle_seconds: float
    burst_seconds: float
    rounds: int
    quiet_seconds_max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What every measurement needs."""

    server: Server
    sizes: Sizes
    report: Report
    ours: Subject
    peers: list[Subject]

    def watched(self) -> AbstractContextManager[machine.Others]:
        """Watch how much CPU others use meanwhile."""
        return machine.others(self.server.pid)

    async def quiet(self) -> None:
        """Wait until others leave the CPU alone, but not for ever."""
        self.report.doing("waiting for a quiet machine")
        until = time.monotonic() + self.sizes.quiet_seconds_max
        while time.monotonic() < until:
            with self.watched() as others:
                await asyncio.sleep(QUIET_LOOK_SECONDS)
            if others.percent < QUIET_PERCENT:
                return


Case = Callable[[Bench], Awaitable[list[Row]]]


@dataclass(frozen=True, slots=True)
class Stage:
    """A subject in a fresh database, set up and connected."""

    bench: Bench
    child: Adapter
    database: str

    async def fill(self, verb: str, items: int, *, first: int = 0, **more: object) -> None:
        """Put items in without timing it."""
        self.bench.report.doing(f"{self.child.name}: {verb} {items:,}", items)
        await self.child.call(
            verb, first=first, items=items, progress=self.bench.report.progress, **more
        )

    async def drain(
        self, items: int, *, whole: bool, verb: str = "drain", **more: object
    ) -> dict[str, float]:
        """Drain; return items, seconds, and the WAL bytes per item."""
        await self.bench.server.rest(self.database)
        await self.bench.quiet()
        self.bench.report.doing(f"{self.child.name}: {verb} {items:,}", items)
        before = await self.bench.server.wal_bytes()
        with self.bench.watched() as others:
            answer = await self.child.call(
                verb,
                items=items,
                whole=whole,
                seconds_max=DRAIN_SECONDS_MAX,
                progress=self.bench.report.progress,
                **more,
            )
        wal = await self.bench.server.wal_bytes() - before
        return {
            **numbers(answer),
            "wal_bytes_per_item": wal / max(1.0, number(answer, "items")),
            OTHERS: others.percent,
        }


@contextlib.asynccontextmanager
async def stage(bench: Bench, subject: Subject) -> AsyncIterator[Stage]:
    """Start a subject in a fresh database and end both."""
    assert subject.launch is not None
    name = f"bench_{subject.name.replace('-', '_')}"
    async with (
        bench.server.database(name) as database,
        adapter(subject.name, subject.launch) as child,
    ):
        bench.report.doing(f"{subject.name}: setup")
        await child.call("setup", place=bench.server.place(database), install=True)
        yield Stage(bench, child, database)


async def attempt(
    bench: Bench,
    subject: Subject,
    *,
    what: str,
    unit: str,
    run: Callable[[Stage], Awaitable[tuple[float, dict[str, float]]]],
) -> Measurement:
    """Run one measurement and keep it, or the reason why there is none."""
    value, detail, reason = None, dict[str, float](), subject.reason
    if subject.launch is not None:
        try:
            async with stage(bench, subject) as on:
                value, detail = await run(on)
        except (AdapterFailed, pgbench.PgbenchFailed) as exc:
            reason = f"failed: {exc}"
    return bench.report.measured(
        Measurement(
            subject=subject.name, what=what, value=value, unit=unit, reason=reason, detail=detail
        )
    )


async def drain_rate(bench: Bench, subject: Subject) -> Measurement:
    """Items per second of one worker on an otherwise empty queue."""
    items = min(bench.sizes.items, subject.items_max)

    async def run(on: Stage) -> tuple[float, dict[str, float]]:
        await on.fill("fill", items)
        answer = await on.drain(items, whole=True)
        return rate(answer), answer

    return await attempt(bench, subject, what="drain", unit="/s", run=run)


async def enqueue_rate(bench: Bench, subject: Subject) -> Measurement:
    """Items per second of bulk enqueue with idempotency keys, committed and ready to be claimed."""
    items = min(bench.sizes.items, subject.items_max)

    async def run(on: Stage) -> tuple[float, dict[str, float]]:
        await bench.quiet()
        bench.report.doing(f"{subject.name}: enqueue {items:,}", items)
        with bench.watched() as others:
            answer = numbers(
                await on.child.call("enqueue", first=0, items=items, progress=bench.report.progress)
            )
        return rate(answer), {**answer, OTHERS: others.percent}

    what = "bulk enqueue" if subject.has_key else "bulk enqueue (it has no key)"
    return await attempt(bench, subject, what=what, unit="/s", run=run)


async def latency(bench: Bench, subject: Subject) -> Measurement:
    """Median milliseconds from COMMIT to handler start on an idle queue; p99 in the detail."""

    async def run(on: Stage) -> tuple[float, dict[str, float]]:
        await bench.quiet()
        bench.report.doing(f"{subject.name}: latency")
        with bench.watched() as others:
            answer = await on.child.call("latency", samples=bench.sizes.latency_samples)
        waits = floats(answer, "milliseconds")
        detail = {
            "p50": statistics.median(waits),
            "p99": statistics.quantiles(waits, n=100, method="inclusive")[P99],
            "max": max(waits),
            OTHERS: others.percent,
        }
        return detail["p50"], detail

    return await attempt(bench, subject, what="latency p50", unit="ms", run=run)


async def pgbench_limit(bench: Bench, subject: Subject) -> Measurement:
    """Items per second of the bare claim and settle SQL, in a database that our side filled."""

    async def run(on: Stage) -> tuple[float, dict[str, float]]:
        await on.fill("fill", bench.sizes.items)
        await bench.server.rest(on.database)
        await bench.quiet()
        bench.report.doing(f"pgbench: {bench.sizes.items:,}")
        with bench.watched() as others:
            value = await pgbench.items_per_second(
                bench.server, on.database, items=bench.sizes.items
            )
        return value, {OTHERS: others.percent}

    limit = Subject(
        name="pgbench",
        launch=subject.launch,
        items_max=subject.items_max,
        reason=subject.reason,
    )
    return await attempt(bench, limit, what="limit", unit="/s", run=run)


def rate(answer: dict[str, float]) -> float:
    """Return items per second."""
    return answer["items"] / answer["seconds"]


def number(answer: dict[str, object], key: str) -> float:
    """Return one number of an answer."""
    value = answer[key]
    assert isinstance(value, int | float), f"{key} is not a number"
    return value


def numbers(answer: dict[str, object]) -> dict[str, float]:
    """Return the numbers of an answer."""
    return {k: float(v) for k, v in answer.items() if isinstance(v, int | float)}


def floats(answer: dict[str, object], key: str) -> list[float]:
    """Return a list of numbers of an answer."""
    values = answer[key]
    assert isinstance(values, list), f"{key} is not a list"
    return [float(v) for v in values]
