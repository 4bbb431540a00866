"""The pace of payments: a lane's rate, the default cycles, and the kill switch, on four workers.

An execution starts when its transaction does, which is `accepted_at` of the payment: all instants
are of one clock, that of the database.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from bench.arrivals import busiest_second
from bench.dispatch import LOOK_SECONDS, WHO, DispatchFailed, Scene, prepared, working
from bench.figures import OTHERS, Row, at_least, at_most, detail, limit_row
from bench.killing import WORKERS
from bench.measure import Bench, Case
from bench.payments import NO_PACING, schedule
from bench.tried import Figures, tried
from penstock.domains.payments.lanes import LANE, POLICY
from penstock.kernel.lane import pause_lane, resume_lane
from penstock.postgres.pool import Connection

RATE: Final = 100
BURST: Final = 10
RATE_SECONDS: Final = 60
QUICK_RATE_SECONDS: Final = 15
CYCLES: Final = 12
QUICK_CYCLES: Final = 3
SWITCHES: Final = 5
QUICK_SWITCHES: Final = 2
TAIL_SECONDS: Final = 2.0  # The processes do not stop in the same instant.

# Batches that are spread over seconds, without a cycle that one worker could keep for itself: all
# workers hold payments that have not started.
OVERLAPPING: Final = {
    "batch_size": 100,
    "dispatch_interval": timedelta(0),
    "jitter_window": timedelta(seconds=4),
}
PER_SWITCH: Final = 10_000  # More than leave in the time before it.
BEFORE_SWITCH_SECONDS_MAX: Final = 20.0
AFTER_SWITCH_SECONDS: Final = 5.0  # Longer than the jitter: whatever may start has started.

STARTS: Final = """
SELECT extract(epoch FROM accepted_at)::float8 FROM penstock.payment
WHERE accepted_at IS NOT NULL
ORDER BY accepted_at
"""
# A claim is one transaction; its payments have its instant.
CYCLES_OF: Final = """
SELECT extract(epoch FROM attempt.claimed_at)::float8 AS claimed_at, count(*) AS claimed,
    extract(epoch FROM max(payment.accepted_at))::float8 AS last_at
FROM penstock.attempt
JOIN penstock.payment USING (item_id)
WHERE attempt.outcome = 'done'
GROUP BY attempt.claimed_at
ORDER BY attempt.claimed_at
"""
SWITCH_OFF: Final = "UPDATE penstock.exec_rate_config SET enabled = 0 WHERE item_type = 'PAYMENT'"
SWITCH_ON: Final = "UPDATE penstock.exec_rate_config SET enabled = 1 WHERE item_type = 'PAYMENT'"
# Each claim takes a number, also if it is rolled back.
LAST_CLAIM: Final = "SELECT last_value FROM penstock.lease_token_seq"
STARTED_BETWEEN: Final = """
SELECT count(*) AS started, max(accepted_at) AS last_at
FROM penstock.payment
WHERE accepted_at >= $1
"""
HOLDERS: Final = "SELECT count(DISTINCT worker) FROM penstock.lease"
HELD: Final = "SELECT coalesce(sum(cardinality(item_ids)), 0) FROM penstock.lease"


async def lane_rate(bench: Bench) -> list[Row]:
    """Payments in a lane with a rate, on four workers: exact, and no second above it."""
    seconds = RATE_SECONDS if bench.sizes.rounds > 1 else QUICK_RATE_SECONDS

    async def run() -> Figures:
        policy = {"rate": RATE, "burst": BURST, **NO_PACING}
        count = int(RATE * (seconds + 4 * TAIL_SECONDS)) + BURST
        async with _workers(bench, count, **policy) as scene:
            bench.report.doing(f"penstock: {RATE} payments per second for {seconds} s")
            with bench.watched() as others:
                await asyncio.sleep(seconds + TAIL_SECONDS)
            starts = await _starts(scene)
        counted = [at for at in starts if at < starts[0] + seconds]
        share = 100 * abs(len(counted) / seconds / RATE - 1)
        return share, {"busiest": busiest_second(counted), OTHERS: others.percent}

    name = f"payments at {RATE}/s over {seconds} s, {WORKERS} workers"
    found = await tried(bench, run, what=f"{name}: deviation", unit="%")
    return [
        limit_row(f"{name}: deviation", found, bar=at_most(1, "≤ 1 %")),
        limit_row(
            f"{name}: most in any second",
            detail(found, "busiest", ""),
            bar=at_most(RATE + BURST, f"≤ {RATE} + {BURST}"),
        ),
    ]


async def cycles(bench: Bench) -> list[Row]:
    """Payments with the default policy, 500 every 5 s with 4 s of jitter: 500 in each cycle."""
    wanted = CYCLES if bench.sizes.rounds > 1 else QUICK_CYCLES
    size, every = POLICY["batch_size"], POLICY["dispatch_interval"].total_seconds()

    async def run() -> Figures:
        async with _workers(bench, size * (wanted + 2)) as scene:
            bench.report.doing(f"penstock: {wanted} cycles of {size} payments")
            with bench.watched() as others:
                await asyncio.sleep(every * (wanted + 1))
            claims = await scene.pool.fetch(CYCLES_OF)
            starts = await _starts(scene)
        begins = [row["claimed_at"] for row in claims][: wanted + 1]
        if len(begins) <= wanted:
            raise DispatchFailed(f"{len(begins)} cycles instead of {wanted + 1}")
        counts = [sum(begin <= at < end for at in starts) for begin, end in pairwise(begins)]
        return min(counts), {
            "most": max(counts),
            "cycle": (begins[-1] - begins[0]) / wanted,
            OTHERS: others.percent,
        }

    name = f"{size} payments per {every:g} s, {wanted} cycles"
    found = await tried(bench, run, what=f"{name}: fewest in a cycle", unit="")
    return [
        limit_row(f"{name}: fewest in a cycle", found, bar=at_least(size, f"≥ {size}")),
        limit_row(
            f"{name}: most in a cycle", detail(found, "most", ""), bar=at_most(size, f"≤ {size}")
        ),
        limit_row(
            f"{name}: length of a cycle",
            detail(found, "cycle", "s"),
            bar=at_most(every * 1.01, f"≤ {every * 1.01:g} s"),
        ),
    ]


async def kill_switch(bench: Bench) -> list[Row]:
    """Payments are switched off while four workers hold many: nothing is claimed any more."""
    times = SWITCHES if bench.sizes.rounds > 1 else QUICK_SWITCHES

    async def run() -> Figures:
        async with _workers(bench, times * PER_SWITCH, **OVERLAPPING) as scene:
            found = [await _switch(scene) for _ in range(times)]
        return max(each.tail_ms for each in found), {
            "claims": sum(each.claims for each in found),
            "held": min(each.held for each in found),
        }

    name = f"kill switch, {WORKERS} workers, worst of {times}"
    found = await tried(bench, run, what=f"{name}: last execution after it", unit="ms")
    return [
        limit_row(f"{name}: last execution after it", found, bar=at_most(250, "≤ 250 ms")),
        limit_row(f"{name}: claims after it", detail(found, "claims", ""), bar=at_most(0, "0")),
    ]


CASES: Final[dict[str, Case]] = {
    "payments_rate": lane_rate,
    "payments_cycles": cycles,
    "payments_switch": kill_switch,
}


@contextlib.asynccontextmanager
async def _workers(bench: Bench, count: int, **policy: Any) -> AsyncGenerator[Scene]:
    """Schedule payments that are due, and let workers begin together."""
    async with prepared(bench, [], lane=LANE, **policy) as scene, contextlib.AsyncExitStack() as on:
        await schedule(scene, count)
        async with scene.pool.acquire() as db:
            await pause_lane(db, LANE, who=WHO)
            for _ in range(WORKERS):
                await on.enter_async_context(working(scene, lane=LANE))
            await bench.quiet()
            await resume_lane(db, LANE, who=WHO)
        yield scene


async def _starts(scene: Scene) -> list[float]:
    return [row[0] for row in await scene.pool.fetch(STARTS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Switched:
    """What happened after the switch was off. The tail counts from before the commit.

    `held` are the payments that workers held then, and most of them had not started.
    """

    claims: int
    tail_ms: float
    held: int


async def _switch(scene: Scene) -> _Switched:
    """Switch payments off while they run, look at what still happens, and switch them on."""
    scene.bench.report.doing("penstock: the kill switch")
    async with scene.pool.acquire() as db:
        await _until_all_hold(db)
        async with db.transaction():
            await db.execute(SWITCH_OFF)
            held = await db.fetchval(HELD)
            off_at: datetime = await db.fetchval("SELECT clock_timestamp()")
        last_claim = await db.fetchval(LAST_CLAIM)
        await asyncio.sleep(AFTER_SWITCH_SECONDS)
        claims = await db.fetchval(LAST_CLAIM) - last_claim
        row = await db.fetchrow(STARTED_BETWEEN, off_at)
        assert row is not None
        await db.execute(SWITCH_ON)
    tail = timedelta(0) if row["last_at"] is None else row["last_at"] - off_at
    return _Switched(claims=claims, tail_ms=tail / timedelta(milliseconds=1), held=held)


async def _until_all_hold(db: Connection) -> None:
    """Wait until each worker holds payments, so that the switch concerns all of them."""
    until = time.monotonic() + BEFORE_SWITCH_SECONDS_MAX
    while (holders := await db.fetchval(HOLDERS)) < WORKERS:
        if time.monotonic() > until:
            raise DispatchFailed(f"{holders} of {WORKERS} workers hold payments")
        await asyncio.sleep(LOOK_SECONDS)
