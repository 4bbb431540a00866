"""The bars of slots: the document's algorithm as the peer, one instant that everybody wants."""

import statistics
import time
from datetime import UTC, datetime
from random import Random
from typing import Final

from bench import document
from bench.booking import (
    CAPACITY,
    MOST,
    POOL,
    WINDOW,
    ask,
    book,
    call,
    check_count,
    four_o_clock,
    opened,
    scatter,
    served,
)
from bench.figures import (
    OTHERS,
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
from bench.measure import P99, Bench, Case, floats, number
from bench.tried import Figures, tried
from penstock import Penstock
from penstock.domains.slots.config import set_config
from penstock.domains.slots.forecast import forecast
from penstock.domains.slots.reflow import reflow

MILLION: Final = 1_000_000
CONNECTIONS: Final = 64
SPREAD_SECONDS: Final = 3600.0
ASKED: Final = 400
ASKED_IN_TURN: Final = 20  # few enough that both databases meet the same noise
FORECASTS: Final = 20
FORECAST_FAR: Final = 10_000_000
SCATTERED: Final = 20_000  # holes to forecast around
WHO: Final = "bench"


async def single(bench: Bench) -> list[Row]:
    """Single HTTP calls from 64 clients, all for one instant, against the document's algorithm."""
    theirs: list[Measurement] = []
    own: list[Measurement] = []
    for _ in range(bench.sizes.rounds):
        theirs.append(await _document(bench))
        own.append(await _single(bench))
    spread = await _single(bench, spread_seconds=SPREAD_SECONDS)
    name = f"single slots, {CONNECTIONS} HTTP clients"
    ours, document_then = middle_turn(own, theirs)
    return [
        ratio_row(name, ours, document_then, bar=at_least(3)),
        limit_row(f"{name}: p99", detail(ours, "p99", "ms"), bar=at_most(25, "≤ 25 ms")),
        ratio_row(
            "the same, wanted times over an hour",
            spread,
            await _document(bench, spread_seconds=SPREAD_SECONDS),
            bar=None,
        ),
    ]


async def batch(bench: Bench) -> list[Row]:
    """Batches of slots, from Python and as NDJSON over HTTP, against the document's algorithm."""
    # Ours is measured over a whole burst, and the document's slows down as one grows.
    halfway = await _document(bench, booked=bench.sizes.items // 2)
    from_start = await _document(bench)
    from_python = await _book(bench)

    async def run() -> Figures:
        async with served(bench) as (place, connection):
            await bench.quiet()
            bench.report.doing(f"penstock: one body of {bench.sizes.items:,} lines")
            with bench.watched() as others:
                answer = await call(
                    "batch",
                    place,
                    first=0,
                    items=bench.sizes.items,
                    requested_at=four_o_clock().isoformat(),
                )
            await check_count(connection, answered=bench.sizes.items)
        return bench.sizes.items / number(answer, "seconds"), {OTHERS: others.percent}

    over_http = await tried(bench, run, what="batch of slots over HTTP", unit="/s")
    bars = at_least(25), at_least(40_000, "≥ 40,000/s")
    return [
        row
        for name, own in (("from Python", from_python), ("over HTTP", over_http))
        for row in (
            ratio_row(
                f"batch of slots {name}", own, named(halfway, "the document, halfway"), bar=bars[0]
            ),
            ratio_row(f"batch of slots {name}", own, from_start, bar=None),
            limit_row(f"batch of slots {name}", own, bar=bars[1]),
        )
    ]


async def million(bench: Bench) -> list[Row]:
    """A million slots for one instant; then the next request for any time, also after ten million.

    The two are asked in turns, so that both meet the same noise.
    """
    few, many = bench.sizes.items, bench.sizes.backlog
    random = Random(3)

    async def run() -> Figures:
        async with opened(bench, "bench_slots_few") as first:
            await bench.quiet()
            with bench.watched() as others:
                seconds = (await book(bench, first, count=few)).seconds
            found = {"seconds": seconds, OTHERS: others.percent}
            waits = await ask(first, random, count=ASKED, booked=few)
            found["p99"] = _percentile_99(waits)
            async with opened(bench, "bench_slots_many") as second:
                expected_at = await _forecast_last(second, count=many)
                booked = await book(bench, second, count=many)
                found["off"] = abs(booked.last_at - expected_at) / WINDOW
                await bench.quiet()
                bench.report.doing("penstock: single requests after both")
                turns = await _in_turn((first, few), (second, many), random=random)
        found["p50 few"], found["p50 many"] = map(statistics.median, turns)
        found["p99 many"] = _percentile_99(turns[1])
        return found["seconds"], found

    share = few / MILLION
    own = await tried(bench, run, what=f"{few:,} slots for one instant", unit="s")
    after = f"next request after {many:,}"
    return [
        limit_row(own.what, own, bar=at_most(20 * share, f"≤ {20 * share:g} s")),
        limit_row(
            f"next request after {few:,}: p99", detail(own, "p99", "ms"), bar=at_most(10, "≤ 10 ms")
        ),
        limit_row(f"{after}: p99", detail(own, "p99 many", "ms"), bar=at_most(10, "≤ 10 ms")),
        ratio_row(
            f"{after}: p50",
            detail(own, "p50 many", "ms"),
            named(detail(own, "p50 few", "ms"), f"after {few:,}"),
            bar=at_most(1.2),
        ),
        limit_row(
            f"forecast of {many:,}: windows off what came",
            detail(own, "off", ""),
            bar=at_most(1, "≤ 1"),
        ),
    ]


async def rate(bench: Bench) -> list[Row]:
    """The most slots in any interval of the window's length, wherever it begins."""

    async def run() -> Figures:
        async with opened(bench, "bench_slots_rate") as app:
            await book(bench, app, count=bench.sizes.items)
            bench.report.doing("penstock: counting slots in every interval")
            return float(await app.pool.fetchval(MOST, WINDOW)), {}

    theirs = await _document(bench)
    own = await tried(bench, run, what="most slots in any 4 s", unit="")
    return [
        limit_row(own.what, own, bar=at_most(CAPACITY + 1, f"≤ {CAPACITY} + 1")),
        ratio_row(own.what, own, detail(theirs, "most", ""), bar=None),
    ]


async def forecasts(bench: Bench) -> list[Row]:
    """A forecast for ten million: how long it takes, and whether it comes true."""

    async def run() -> Figures:
        async with opened(bench, "bench_slots_forecast") as app:
            noon = four_o_clock().replace(hour=12)
            last_at = await _forecast_last(app, count=MILLION, from_at=noon)
            check_at = noon.replace(hour=23, minute=6, second=39, microsecond=960_000)
            found = {"check": abs((last_at - check_at).total_seconds())}
            await bench.quiet()
            found["empty"] = await _forecast_p50(app)
            await scatter(app, count=SCATTERED, over=FORECAST_FAR)
            with bench.watched() as others:
                found["holes"] = await _forecast_p50(app)
            found[OTHERS] = others.percent
            expected_at = await _forecast_last(app, count=bench.sizes.items)
            booked = await book(bench, app, count=bench.sizes.items)
            found["off"] = abs(booked.last_at - expected_at) / WINDOW
            return found["empty"], found

    own = await tried(bench, run, what=f"forecast of {FORECAST_FAR:,}: p50", unit="ms")
    return [
        limit_row(own.what, own, bar=at_most(50, "≤ 50 ms")),
        limit_row(
            f"the same around {SCATTERED:,} holes",
            detail(own, "holes", "ms"),
            bar=at_most(50, "≤ 50 ms"),
        ),
        limit_row("forecast off the check value", detail(own, "check", "s"), bar=at_most(0, "0")),
        limit_row(
            f"forecast of {bench.sizes.items:,}: windows off what came",
            detail(own, "off", ""),
            bar=at_most(1, "≤ 1"),
        ),
    ]


async def reflows(bench: Bench) -> list[Row]:
    """A reflow of a million slots after the capacity was halved."""
    count = bench.sizes.items

    async def run() -> Figures:
        async with opened(bench, "bench_slots_reflow") as app:
            await book(bench, app, count=count)
            await bench.quiet()
            bench.report.doing(f"penstock: reflow of {count:,}")
            async with app.pool.acquire() as db:
                await set_config(
                    db, POOL, who=WHO, max_per_window=CAPACITY // 2, window_size=WINDOW
                )
                with bench.watched() as others:
                    started = time.perf_counter()
                    now = datetime.now(UTC)
                    await reflow(db, POOL, freeze_until=now, who=WHO, is_dry_run=False)
                    seconds = time.perf_counter() - started
            most = float(await app.pool.fetchval(MOST, WINDOW))
            return seconds, {"most": most, OTHERS: others.percent}

    share = count / MILLION
    own = await tried(bench, run, what=f"reflow of {count:,} after halving capacity", unit="s")
    allowed = CAPACITY // 2 + 1
    return [
        limit_row(own.what, own, bar=at_most(60 * share, f"≤ {60 * share:g} s")),
        limit_row(
            "most slots in any 4 s after it",
            detail(own, "most", ""),
            bar=at_most(allowed, f"≤ {allowed}"),
        ),
    ]


CASES: Final[dict[str, Case]] = {
    "slots_single": single,
    "slots_batch": batch,
    "slots_million": million,
    "slots_rate": rate,
    "slots_forecast": forecasts,
    "slots_reflow": reflows,
}


async def _document(bench: Bench, *, spread_seconds: float = 0.0, booked: int = 0) -> Measurement:
    async def run() -> Figures:
        return await document.assign(
            bench, requested_at=four_o_clock(), spread_seconds=spread_seconds, booked=booked
        )

    what = "slots, wanted times over an hour" if spread_seconds else "slots for one instant"
    what = f"{what}, {booked:,} booked before" if booked else what
    return await tried(bench, run, what=what, unit="/s", subject=document.NAME)


async def _single(bench: Bench, *, spread_seconds: float = 0.0) -> Measurement:
    async def run() -> Figures:
        async with served(bench) as (place, connection):
            await bench.quiet()
            bench.report.doing(f"penstock: {CONNECTIONS} HTTP clients")
            with bench.watched() as others:
                answer = await call(
                    "single",
                    place,
                    connections=CONNECTIONS,
                    seconds=bench.sizes.burst_seconds,
                    requested_at=four_o_clock().isoformat(),
                    spread_seconds=spread_seconds,
                )
            waits = floats(answer, "milliseconds")
            await check_count(connection, answered=len(waits))
        return len(waits) / number(answer, "seconds"), {
            "p50": statistics.median(waits),
            "p99": _percentile_99(waits),
            "max": max(waits),
            OTHERS: others.percent,
        }

    what = "single slots over an hour" if spread_seconds else "single slots over HTTP"
    return await tried(bench, run, what=what, unit="/s")


async def _book(bench: Bench) -> Measurement:
    async def run() -> Figures:
        async with opened(bench, "bench_slots_batch") as app:
            await bench.quiet()
            with bench.watched() as others:
                booked = await book(bench, app, count=bench.sizes.items)
        return bench.sizes.items / booked.seconds, {OTHERS: others.percent}

    return await tried(bench, run, what="batch of slots from Python", unit="/s")


async def _forecast_last(app: Penstock, *, count: int, from_at: datetime | None = None) -> datetime:
    async with app.pool.acquire() as db:
        found = await forecast(db, POOL, count=count, from_at=from_at or four_o_clock())
    return found.last_at


async def _forecast_p50(app: Penstock) -> float:
    """Return the median milliseconds of forecasts for ten million."""
    waits: list[float] = []
    for _ in range(FORECASTS):
        started = time.perf_counter()
        await _forecast_last(app, count=FORECAST_FAR)
        waits.append((time.perf_counter() - started) * 1000)
    return statistics.median(waits)


async def _in_turn(*sides: tuple[Penstock, int], random: Random) -> list[list[float]]:
    """Ask each side a few times, turn by turn."""
    waits: list[list[float]] = [[] for _ in sides]
    for _ in range(ASKED // ASKED_IN_TURN):
        for (app, booked), known in zip(sides, waits, strict=True):
            known.extend(await ask(app, random, count=ASKED_IN_TURN, booked=booked))
    return waits


def _percentile_99(milliseconds: list[float]) -> float:
    return statistics.quantiles(milliseconds, n=100, method="inclusive")[P99]
