"""The bars of webhooks: how fast, at what cost, and what slow endpoints and kills do to others."""

import asyncio
import contextlib
import json
import statistics
import sys
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from bench import flooding, hanging, posting
from bench.arrivals import busiest_second, inversions, mean_rate, percentile_99
from bench.booking import call
from bench.callers import Place
from bench.dispatch import (
    CHUNK,
    LOG_STATEMENTS,
    LOST,
    DispatchFailed,
    Scene,
    accept,
    check_events,
    deliveries_since,
    drain,
    number_of,
    prepared,
    serving,
    working,
)
from bench.environment import Unavailable
from bench.events import KEYS, TYPE, data
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
from bench.killing import WORKERS, deliver_together
from bench.measure import Bench, Case, floats, number, numbers
from bench.nginx import nginx
from bench.process import answer
from bench.receiver import receiving
from bench.redis import redis
from bench.registry import AIOHTTP, HTTPCORE, HTTPCORE_UNPOOLED, Subject, peer_subject
from bench.tried import Figures, tried
from penstock.domains.webhooks.body import compose
from penstock.domains.webhooks.domain import ORDERED_LANE, POLICY
from penstock.domains.webhooks.subscription import NewSubscription

AT_ONCE: Final = 100
DELIVERIES_MAX: Final = 100_000
DELIVER_SECONDS_MAX: Final = 60.0
POST_SECONDS_MAX: Final = 4.0
CALLERS: Final = 64
CALL_SECONDS_MAX: Final = 10.0
BATCHES_AT_ONCE: Final = 4
PACE: Final = 500  # Events per second, while others flood the API.
FLOOD_SECONDS_MAX: Final = 5.0
WARM_UP_SECONDS: Final = 1.0
HANG_SECONDS_MAX: Final = 5.0
RATE: Final = 50
RATE_EVENTS_MAX: Final = 1500
ORDERED_MAX: Final = 20_000
ORDERED_SECONDS_MAX: Final = 75.0
KILLS: Final = 5
KILL_SECONDS: Final = 2.0
LEASE: Final = timedelta(seconds=2)  # What a killed worker held waits that long, and for a sweep.

CROWD: Final = int(POLICY["concurrency"])  # As lanes of webhooks come.

# Every guard judges each call, and none turns one away unless the lane runs more at once: the rate
# is the highest that there is.
GUARDED: Final = NewSubscription(
    url="http://127.0.0.1:9/", event_types=[TYPE], rate_limit=100_000.0, concurrency=AT_ONCE
)


async def deliver(bench: Bench) -> list[Row]:
    """Deliveries per second with all guards on, against HTTP clients that do nothing but POST."""
    alone = _our_client()
    bench.report.doing("aiohttp: preparing its environment")
    peer = await asyncio.to_thread(peer_subject, AIOHTTP)
    theirs: list[Measurement] = []
    limits: list[Measurement] = []
    own: list[Measurement] = []
    crowded: list[Measurement] = []
    await bench.quiet()
    for _ in range(bench.sizes.rounds):
        limits.append(await _post(bench, alone))
        theirs.append(await _post(bench, peer))
        own.append(await _deliver(bench))
        crowded.append(await _deliver(bench, concurrency=CROWD))
    busy = await _deliver_beside_calls(bench)
    name = f"webhook deliveries, {AT_ONCE} at once"
    return [
        ratio_row(name, *middle_turn(own, limits), bar=at_least(0.5)),
        ratio_row(name, *middle_turn(own, theirs), bar=at_least(1.5)),
        ratio_row(
            f"the same in a lane that runs {CROWD:,} at once, as lanes come",
            *middle_turn(crowded, [named(each, f"{AT_ONCE} at once") for each in own]),
            bar=None,
        ),
        ratio_row(
            f"the same while {CALLERS} HTTP clients post events",
            busy,
            named(detail(busy, "accepted", "/s"), "events accepted"),
            bar=None,
        ),
    ]


async def clients(bench: Bench) -> list[Row]:
    """POSTs per second of HTTP clients alone, and the CPU time that each POST takes."""
    bench.report.doing("HTTP clients: preparing their environments")
    wanted = (AIOHTTP, HTTPCORE, HTTPCORE_UNPOOLED)
    peers = [await asyncio.to_thread(peer_subject, peer) for peer in wanted]
    own: list[Measurement] = []
    theirs: list[list[Measurement]] = [[] for _ in peers]
    await bench.quiet()
    for _ in range(bench.sizes.rounds):
        own.append(await _post(bench, _our_client()))
        for peer, measured in zip(peers, theirs, strict=True):
            measured.append(await _post(bench, peer))
    rows: list[Row] = []
    for measured in theirs:
        ours, peer_turn = middle_turn(own, measured)
        cpu = detail(ours, "cpu", "µs"), detail(peer_turn, "cpu", "µs")
        rows.append(ratio_row(f"POSTs, {AT_ONCE} at once", ours, peer_turn, bar=None))
        rows.append(ratio_row("CPU time per POST", *cpu, bar=None))
    return rows


async def accepts(bench: Bench) -> list[Row]:
    """Events accepted over HTTP with a delivery each: one in a call, and a thousand."""
    single = await _accept(bench, "events", connections=CALLERS, each=1)
    batch = await _accept(bench, "event_batches", connections=BATCHES_AT_ONCE, each=CHUNK)
    name = f"POST /events, {CALLERS} HTTP clients"
    return [
        limit_row(name, single, bar=at_least(2000, "≥ 2,000/s")),
        limit_row(f"{name}: p99", detail(single, "p99", "ms"), bar=at_most(50, "≤ 50 ms")),
        limit_row(
            f"POST /events/batch of {CHUNK:,}, {BATCHES_AT_ONCE} HTTP clients: events",
            batch,
            bar=at_least(10_000, "≥ 10,000/s"),
        ),
    ]


async def flooded(bench: Bench) -> list[Row]:
    """Latency of POST /events while other connections send a header without end."""
    without: list[Measurement] = []
    beside: list[Measurement] = []
    await bench.quiet()
    for _ in range(2 * bench.sizes.rounds + 1):
        without.append(await _paced(bench, floods=False))
        beside.append(await _paced(bench, floods=True))
    own, alone = middle_turn(beside, without)
    size = f"{flooding.BYTES_EACH // 1024**2} MB of one header from {flooding.CONNECTIONS} clients"
    name = f"POST /events at {PACE}/s beside {size}"
    return [
        ratio_row(f"{name}: p99", own, named(alone, "no flood"), bar=at_most(1.2)),
        ratio_row(
            f"{name}: p50",
            detail(own, "p50", "ms"),
            named(detail(alone, "p50", "ms"), "no flood"),
            bar=None,
        ),
    ]


async def statements(bench: Bench) -> list[Row]:
    """SQL statements of a worker per delivered event, at full load.

    Counted in the server's log, where every statement of every connection is a line; transactions
    would hide statements. The worker's start, polls and sweeps are counted too.
    """
    events = _deliveries(bench)

    async def run() -> Figures:
        # Our own connection is older than these settings, so it is not logged.
        async with _guarded(bench) as scene, scene.pool.acquire() as db:
            await accept(scene, events)
            for setting in LOG_STATEMENTS:
                await db.execute(setting)
            before = bench.server.statements(scene.database)
            bench.report.doing(f"penstock: deliver {events:,}")
            async with working(scene):
                await drain(db, events=events, seconds_max=DELIVER_SECONDS_MAX)
                counted = bench.server.statements(scene.database) - before
        return counted / events, {"statements": float(counted)}

    own = await tried(bench, run, what="SQL statements per delivered event", unit="")
    return [limit_row(f"{own.what}, of {events:,}", own, bar=at_most(0.1, "≤ 0.1"))]


async def hung(bench: Bench) -> list[Row]:
    """Latency of healthy endpoints while as many events go to endpoints that never answer."""
    without: list[Measurement] = []
    beside: list[Measurement] = []
    await bench.quiet()
    # The slowest hundredth of one turn is a handful of moments, most of them the disk's: it takes
    # many turns until the middle one tells something.
    for _ in range(2 * bench.sizes.rounds + 1):
        without.append(await _latency(bench, hang=False))
        beside.append(await _latency(bench, hang=True))
    own, alone = middle_turn(beside, without)
    name = "healthy endpoints while others hang"
    return [
        ratio_row(f"{name}: p99", own, named(alone, "healthy alone"), bar=at_most(1.2)),
        ratio_row(
            f"{name}: p50",
            detail(own, "p50", "ms"),
            named(detail(alone, "p50", "ms"), "healthy alone"),
            bar=None,
        ),
    ]


async def rate(bench: Bench) -> list[Row]:
    """A subscription's rate limit under several workers that share a Redis."""
    events = min(RATE_EVENTS_MAX, bench.sizes.items // 200)

    async def run() -> Figures:
        async with receiving() as receiver, redis() as redis_url:
            limited = NewSubscription(url=receiver.url, event_types=[TYPE], rate_limit=float(RATE))
            async with prepared(bench, [limited]) as scene:
                await accept(scene, events)
                bench.report.doing(f"penstock: {RATE} per second, {WORKERS} workers", events)
                with bench.watched() as others:
                    await deliver_together(
                        scene,
                        receiver,
                        events=events,
                        seconds_max=2 * events / RATE,
                        variables={"PENSTOCK_REDIS_URL": redis_url},
                    )
            instants = sorted(at for _, at in await receiver.arrivals())
        found = {"mean": mean_rate(instants), OTHERS: others.percent}
        return float(busiest_second(instants)), found

    what = f"most deliveries in any second, {WORKERS} workers on Redis"
    own = await tried(bench, run, what=what, unit="")
    limit = Measurement(subject="the limit", what="", value=float(RATE), unit="/s")
    return [
        limit_row(what, own, bar=at_most(RATE * 1.02, f"≤ {RATE} + 2 %")),
        ratio_row(f"the mean over {events:,}", detail(own, "mean", "/s"), limit, bar=None),
    ]


async def order(bench: Bench) -> list[Row]:
    """Order per key at the endpoint, while workers are killed and replaced."""
    events = min(ORDERED_MAX, bench.sizes.items // 20)

    async def run() -> Figures:
        async with receiving() as receiver:
            ordered = NewSubscription(
                url=f"{receiver.url}slow",  # So that a kill meets many calls under way.
                event_types=[TYPE],
                ordering_key="key",
                rate_limit=None,
                concurrency=KEYS,
            )
            # The last events may meet every kill, and are not to end dead by that.
            policy = {"lease": LEASE, "max_attempts": 100}
            async with prepared(bench, [ordered], lane=ORDERED_LANE, **policy) as scene:
                await accept(scene, events)
                bench.report.doing(f"penstock: in order, {WORKERS} workers, kills", events)
                kills = await deliver_together(
                    scene,
                    receiver,
                    events=events,
                    seconds_max=ORDERED_SECONDS_MAX,
                    lane=ORDERED_LANE,
                    kills_max=KILLS,
                    kill_every=KILL_SECONDS,
                )
                lost = float(await scene.pool.fetchval(LOST))
            arrived = [number_of(event_id) for event_id, _ in await receiver.arrivals()]
        if not lost:
            raise DispatchFailed(f"{kills} kills, but no worker had anything under way")
        repeated = float(len(arrived) - events)
        found = {"kills": float(kills), "lost": lost, "repeated": repeated}
        return float(inversions(arrived, keys=KEYS)), found

    own = await tried(bench, run, what="inversions of order per key", unit="")
    kills = own.detail.get("kills", 0)
    name = f"{own.what}, {events:,} deliveries, {KEYS:,} keys, {kills:g} kills"
    return [limit_row(name, own, bar=at_most(0, "0"))]


CASES: Final[dict[str, Case]] = {
    "webhooks_deliver": deliver,
    "webhooks_clients": clients,
    "webhooks_accept": accepts,
    "webhooks_flooded": flooded,
    "webhooks_statements": statements,
    "webhooks_hanging": hung,
    "webhooks_rate": rate,
    "webhooks_order": order,
}


def _our_client() -> Subject:
    return Subject(name="our client alone", launch=posting.LAUNCH, items_max=0)


def _deliveries(bench: Bench) -> int:
    return min(DELIVERIES_MAX, bench.sizes.items // 10)


@contextlib.asynccontextmanager
async def _guarded(bench: Bench, *, concurrency: int = AT_ONCE) -> AsyncGenerator[Scene]:
    """Prepare deliveries to nginx, as many at once as the clients alone post."""
    async with (
        nginx() as url,
        prepared(bench, [replace(GUARDED, url=url)], concurrency=concurrency) as scene,
    ):
        yield scene


async def _post(bench: Bench, subject: Subject) -> Measurement:
    """Let an HTTP client alone send what a delivery sends, without a signature."""

    async def run() -> Figures:
        if subject.launch is None:
            raise Unavailable(subject.reason)
        body = compose(
            event_id="event-0",
            event_type=TYPE,
            source=None,
            occurred_at=datetime.now(UTC),
            data=data(0),
        )
        async with nginx() as url:
            asked = {
                "url": url,
                "body": body.decode(),
                "connections": AT_ONCE,
                "seconds": min(POST_SECONDS_MAX, bench.sizes.burst_seconds),
            }
            bench.report.doing(f"{subject.name}: {AT_ONCE} at once")
            with bench.watched() as others:
                done = await answer(
                    (*subject.launch.command, json.dumps(asked)), subject.launch.variables
                )
        items = number(done, "items")
        found = {"cpu": number(done, "cpu_seconds") / items * 1e6, OTHERS: others.percent}
        return items / number(done, "seconds"), found

    return await tried(bench, run, what="posts", unit="/s", subject=subject.name)


async def _deliver(bench: Bench, *, concurrency: int = AT_ONCE) -> Measurement:
    events = _deliveries(bench)

    async def run() -> Figures:
        async with _guarded(bench, concurrency=concurrency) as scene, scene.pool.acquire() as db:
            await accept(scene, events)
            await bench.server.rest(scene.database)
            bench.report.doing(f"penstock: deliver {events:,}")
            with bench.watched() as others:
                async with working(scene):
                    seconds = await drain(db, events=events, seconds_max=DELIVER_SECONDS_MAX)
        return events / seconds, {OTHERS: others.percent}

    return await tried(bench, run, what="webhook deliveries", unit="/s")


async def _deliver_beside_calls(bench: Bench) -> Measurement:
    """Deliver from a backlog while the API accepts more, all in processes of their own."""

    async def run() -> Figures:
        async with _guarded(bench) as scene, scene.pool.acquire() as db:
            await accept(scene, _deliveries(bench))
            await bench.server.rest(scene.database)
            async with serving(scene) as place, working(scene):
                bench.report.doing(f"penstock: deliver beside {CALLERS} HTTP clients")
                began_at = await db.fetchval("SELECT clock_timestamp()")
                with bench.watched() as others:
                    called = await call(
                        "events",
                        place,
                        connections=CALLERS,
                        seconds=min(POST_SECONDS_MAX, bench.sizes.burst_seconds),
                    )
                    ended_at = await db.fetchval("SELECT clock_timestamp()")
                deliveries = await deliveries_since(db, began_at)
        accepted = len(floats(called, "milliseconds")) / number(called, "seconds")
        took = (ended_at - began_at).total_seconds()
        return deliveries / took, {"accepted": accepted, OTHERS: others.percent}

    return await tried(bench, run, what="webhook deliveries beside calls", unit="/s")


async def _accept(bench: Bench, verb: str, *, connections: int, each: int) -> Measurement:
    more = {} if each == 1 else {"each": each}

    async def run() -> Figures:
        async with prepared(bench, [GUARDED]) as scene, serving(scene) as place:
            await bench.quiet()
            bench.report.doing(f"penstock: {verb} from {connections} HTTP clients")
            with bench.watched() as others:
                called = await call(
                    verb,
                    place,
                    connections=connections,
                    seconds=min(CALL_SECONDS_MAX, bench.sizes.burst_seconds),
                    **more,
                )
            waits = floats(called, "milliseconds")
            await check_events(scene, accepted=len(waits) * each)
        return len(waits) * each / number(called, "seconds"), {
            "p50": statistics.median(waits),
            "p99": percentile_99(waits),
            "max": max(waits),
            OTHERS: others.percent,
        }

    return await tried(bench, run, what=f"{verb} over HTTP", unit="/s")


async def _paced(bench: Bench, *, floods: bool) -> Measurement:
    seconds = min(FLOOD_SECONDS_MAX, bench.sizes.rate_seconds)

    async def run() -> Figures:
        async with prepared(bench, [GUARDED]) as scene, serving(scene) as place:
            bench.report.doing(f"penstock: {PACE} events/s {'beside a flood' * floods}")
            arguments = {"connections": CALLERS, "per_second": PACE}
            await call("paced_events", place, seconds=WARM_UP_SECONDS, **arguments)
            flood = _flood(place, seconds=seconds) if floods else asyncio.sleep(0, {})
            with bench.watched() as others:
                called, flooded_with = await asyncio.gather(
                    call(
                        "paced_events",
                        place,
                        seconds=seconds,
                        first=round(PACE * WARM_UP_SECONDS),
                        **arguments,
                    ),
                    flood,
                )
        waits = floats(called, "milliseconds")
        return percentile_99(waits), {
            "p50": statistics.median(waits),
            "max": max(waits),
            OTHERS: others.percent,
            **numbers(flooded_with),
        }

    what = "p99 of POST /events, flooded" if floods else "p99 of POST /events"
    return await tried(bench, run, what=what, unit="ms")


async def _flood(place: Place, *, seconds: float) -> dict[str, object]:
    asked = json.dumps({"host": place.host, "port": place.port, "seconds": seconds})
    return await answer((sys.executable, "-m", "bench.flooding", asked))


async def _latency(bench: Bench, *, hang: bool) -> Measurement:
    async def run() -> Figures:
        async with (
            receiving() as receiver,
            receiving() as silent,
            prepared(bench, hanging.subscriptions(receiver, silent)) as scene,
        ):
            bench.report.doing(f"penstock: healthy endpoints {'beside silent ones' * hang}")
            with bench.watched() as others:
                seconds = min(HANG_SECONDS_MAX, bench.sizes.rate_seconds)
                waits = await hanging.milliseconds(scene, receiver, seconds=seconds, hang=hang)
        return percentile_99(waits), {
            "p50": statistics.median(waits),
            "max": max(waits),
            OTHERS: others.percent,
        }

    what = "p99 to healthy endpoints, others hang" if hang else "p99 to healthy endpoints"
    return await tried(bench, run, what=what, unit="ms")
