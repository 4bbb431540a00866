"""The bar of limits per key: exact for each, used up by the hot ones, and no delay for the others.

The items of a few hot keys are due at once and are half of all. Those of the other keys become due
evenly over the run, far below the rate of their keys, so nothing but the hot ones can delay them;
how late they start is compared with a run without the hot keys.
"""

import asyncio
import contextlib
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final

from bench.adapter import adapter
from bench.arrivals import busiest_second, percentile_99
from bench.environment import Unavailable
from bench.figures import (
    OTHERS,
    Measurement,
    Row,
    at_least,
    at_most,
    detail,
    limit_row,
    named,
    ratio_row,
)
from bench.measure import Bench, Case, Stage, attempt, floats
from bench.process import NotReady
from bench.redis import redis

RATE: Final = 20
KEYS: Final = 1_000
HOT: Final = 10
PROCESSES: Final = 4
CHUNK: Final = 1_000  # A child reads no longer lines.
READY_SECONDS: Final = 1.0  # From the fill until the workers run.
TAIL_SECONDS: Final = 0.5  # The processes do not stop in the same instant.
# Each hot item is refused once, also those whose turn comes after the run.
SNOOZES_MAX: Final = 1.5
SLOWER_MS_MAX: Final = 10.0  # Half of what a claim and a settle under load take.


@dataclass(slots=True)
class Plan:
    """The items of a run: the key of each, and when it is due, in seconds since 1970."""

    keys: list[int] = field(default_factory=list)
    due_ats: list[float] = field(default_factory=list)

    def add(self, key: int, due_at: float) -> None:
        """Add one item; its number is that of its place."""
        self.keys.append(key)
        self.due_ats.append(due_at)


async def key_limits(bench: Bench) -> list[Row]:
    """A lane with a rate per key, hot keys and others, under several worker processes on Redis."""
    seconds = bench.sizes.rate_seconds
    alone = await _measure(bench, seconds=seconds, has_hot=False)
    own = await _measure(bench, seconds=seconds, has_hot=True)
    slower = Measurement(
        subject=own.subject,
        what="slower",
        value=None if own.value is None else own.detail["p50"] - alone.detail.get("p50", 0.0),
        unit="ms",
        reason=own.reason or alone.reason,
        detail=own.detail,
    )
    each = f"{KEYS:,} keys at {RATE}/s, {HOT} of them hot"
    return [
        limit_row(
            f"{each}, {PROCESSES} processes on Redis, {seconds:g} s: most starts of a key "
            "in any second",
            own,
            bar=at_most(RATE + 1, f"≤ {RATE + 1}"),
        ),
        limit_row(
            f"{each}: least share of its rate that a hot key used",
            detail(own, "used", ""),
            bar=at_least(0.95),
        ),
        limit_row(
            "the other keys: delay of a start, p50, above that without hot keys",
            slower,
            bar=at_most(SLOWER_MS_MAX, f"≤ {SLOWER_MS_MAX:g} ms"),
        ),
        ratio_row(
            "the other keys: delay of a start, p99",
            detail(own, "p99", "ms"),
            named(detail(alone, "p99", "ms"), "no hot keys"),
            bar=None,
        ),
        limit_row(
            "snoozes per start of a hot key",
            detail(own, "snoozes", ""),
            bar=at_most(SNOOZES_MAX, f"≤ {SNOOZES_MAX}"),
        ),
    ]


async def _measure(bench: Bench, *, seconds: float, has_hot: bool) -> Measurement:
    async def run(on: Stage) -> tuple[float, dict[str, float]]:
        try:
            async with redis() as url:
                with bench.watched() as others:
                    figures = await _run(on, url, seconds=seconds, has_hot=has_hot)
        except (Unavailable, NotReady) as missing:
            raise RuntimeError(str(missing)) from missing
        return figures["most"], {**figures, OTHERS: others.percent}

    what = f"limits per key, {'hot keys' if has_hot else 'no hot keys'}"
    return await attempt(bench, bench.ours, what=what, unit="", run=run)


async def _run(on: Stage, url: str, *, seconds: float, has_hot: bool) -> dict[str, float]:
    """Run several worker processes on one database and one Redis; return the figures."""
    ours = on.bench.ours
    assert ours.launch is not None
    launch = replace(ours.launch, variables=ours.launch.variables | {"PENSTOCK_REDIS_URL": url})
    place = on.bench.server.place(on.database)
    async with contextlib.AsyncExitStack() as stack:
        children = [
            await stack.enter_async_context(adapter(f"{ours.name}-{n}", launch))
            for n in range(PROCESSES)
        ]
        for child in children:
            await child.call("setup", place=place, install=False)
        await on.bench.quiet()
        plan = _plan(time.time() + READY_SECONDS, seconds=seconds, has_hot=has_hot)
        to_wall = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
        for first in range(0, len(plan.keys), CHUNK):
            keys, due_ats = (each[first : first + CHUNK] for each in (plan.keys, plan.due_ats))
            await children[0].call(
                "fill_limited", first=first, keys=keys, due_ats=due_ats, per_second=RATE
            )
        on.bench.report.doing(f"{ours.name}: {PROCESSES} processes for {seconds:g} s")
        answers = await asyncio.gather(*(c.call("starts", seconds=seconds) for c in children))
    started = [
        (int(number), at)
        for answer in answers
        for number, at in zip(floats(answer, "items"), floats(answer, "starts"), strict=True)
    ]
    async with on.bench.server.connect(on.database) as db:
        snoozes = await db.fetchval(
            "SELECT count(*) FROM penstock.attempt WHERE outcome = 'snooze'"
        )
    figures = _figures(plan, started, to_wall=to_wall)
    return {**figures, "snoozes": snoozes / max(1.0, figures["hot_starts"])}


def _plan(at: float, *, seconds: float, has_hot: bool) -> Plan:
    """Return half of the items for the hot keys, due at once, and half for the others."""
    plan = Plan()
    each = int(RATE * (seconds + 5))
    for _ in range(each if has_hot else 0):
        for key in range(HOT):
            plan.add(key, at)
    count = each * HOT
    for number in range(count):
        plan.add(HOT + number % (KEYS - HOT), at + seconds * number / count)
    return plan


def _figures(plan: Plan, started: list[tuple[int, float]], *, to_wall: float) -> dict[str, float]:
    starts: dict[int, list[float]] = defaultdict(list)
    delays: list[float] = []
    for number, at in sorted(started, key=lambda pair: pair[1]):
        starts[plan.keys[number]].append(at)
        if plan.keys[number] >= HOT:
            delays.append(max(0.0, at + to_wall - plan.due_ats[number]))
    end = max(at for _, at in started) - TAIL_SECONDS
    used = [
        sum(at < end for at in instants) / (RATE * (end - instants[0]))
        for key in range(HOT)
        if (instants := starts.get(key))
    ]
    return {
        "most": float(max(busiest_second(instants) for instants in starts.values())),
        "used": min(used, default=0.0),
        "p50": 1_000 * median(delays),
        "p99": 1_000 * percentile_99(delays),
        "starts": float(len(started)),
        "hot_starts": float(sum(len(starts.get(key, ())) for key in range(HOT))),
    }


CASES: Final[dict[str, Case]] = {"key_limits": key_limits}
