"""Our side of the slot bars: slots booked from Python and over HTTP, and what became of them."""

import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random
from typing import Final

import asyncpg

from bench import callers
from bench.measure import Bench
from bench.process import NoAnswer, answer, listening
from penstock import Penstock
from penstock.base import log
from penstock.domains.slots.assign import SlotRequest, assign_many
from penstock.kernel.api_keys import create_key

POOL: Final = "default"
CAPACITY: Final = 100
WINDOW: Final = timedelta(seconds=4)
CHUNK: Final = 50_000
TOKEN: Final = "psk_bench_0123456789abcdef"

# `penstock serve` on any free port. A line per request is not what is measured.
SERVE: Final = (sys.executable, "-m", "penstock.cli", "serve", "--port", "0")
SERVE_VARIABLES: Final = {"PENSTOCK_LOG_LEVEL": "warning"}

ASSIGN_ONE: Final = """
SELECT outcome FROM penstock.assign_slots($1, ARRAY[$2::text], ARRAY[$3::timestamptz])
"""
COUNT: Final = "SELECT count(*) FROM penstock.slot"
# Both ends of the interval count: stricter than the bar needs.
MOST: Final = """
SELECT max(slots) FROM (
    SELECT count(*) OVER (
        ORDER BY scheduled_at RANGE BETWEEN CURRENT ROW AND $1::interval FOLLOWING
    ) AS slots
    FROM penstock.slot
) AS sliding
"""


class BookingFailed(Exception):
    """A booking did not end as it must; the text says how it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Booked:
    """What a booking took, and the instant of its last slot."""

    seconds: float
    last_at: datetime


@cache
def four_o_clock() -> datetime:
    """Return the instant that everybody wants, the same for the whole run."""
    day = datetime.now(UTC) + timedelta(days=2)
    return day.replace(hour=16, minute=0, second=0, microsecond=0)


@contextlib.asynccontextmanager
async def opened(bench: Bench, name: str) -> AsyncIterator[Penstock]:
    """Open an app in a fresh database, which has the pool `default` of 100 per 4 s."""
    log.configure("warning")
    async with (
        bench.server.database(name) as database,
        Penstock(bench.server.dsn(database)) as app,
    ):
        yield app


async def book(bench: Bench, app: Penstock, *, count: int) -> Booked:
    """Book a slot for each of `count` events that all want one instant."""
    seconds, last_at = 0.0, four_o_clock()
    bench.report.doing(f"penstock: book {count:,}", count)
    for first in range(0, count, CHUNK):
        numbers = range(first, min(first + CHUNK, count))
        wanted = [(f"payment-{number:012}", four_o_clock()) for number in numbers]
        booked = await _assign(app, wanted)
        seconds, last_at = seconds + booked.seconds, booked.last_at
        bench.report.progress(numbers.stop)
    return Booked(seconds=seconds, last_at=last_at)


async def scatter(app: Penstock, *, count: int, over: int) -> None:
    """Book slots at random times of the stretch that `over` slots take, to leave holes in it."""
    random = Random(3)
    await _assign(
        app,
        [
            (f"scattered-{number}", four_o_clock() + random.random() * _span(over))
            for number in range(count)
        ],
    )


async def _assign(app: Penstock, wanted: list[tuple[str, datetime]]) -> Booked:
    requests = [SlotRequest(event_id=event_id, requested_at=at) for event_id, at in wanted]
    async with app.pool.acquire() as db:
        started = time.perf_counter()
        answers = await assign_many(db, POOL, requests)
        seconds = time.perf_counter() - started
    slots = [answer.slot for answer in answers if answer.slot and answer.outcome == "assigned"]
    if len(slots) < len(requests):
        raise BookingFailed(f"{len(requests):,} requests, but {len(slots):,} slots")
    return Booked(seconds=seconds, last_at=slots[-1].scheduled_at)


def _span(slots: int) -> timedelta:
    return slots / CAPACITY * WINDOW


async def ask(app: Penstock, random: Random, *, count: int, booked: int) -> list[float]:
    """Ask for slots at any time, one call each; return the milliseconds of each call.

    Half of the times lie in the stretch that is booked, the others before and behind it.
    """
    span = _span(booked)
    until_start = four_o_clock() - datetime.now(UTC)
    waits: list[float] = []
    async with app.pool.acquire() as db:
        for _ in range(count):
            offset = random.choice(
                (
                    random.random() * span,
                    random.random() * span,
                    span + random.random() * span,
                    -random.random() * until_start,
                )
            )
            event_id = f"next-{random.getrandbits(60):015x}"
            started = time.perf_counter()
            outcome = await db.fetchval(ASSIGN_ONE, POOL, event_id, four_o_clock() + offset)
            waits.append((time.perf_counter() - started) * 1000)
            if outcome != "assigned":
                raise BookingFailed(f"a single request was {outcome}")
    return waits


@contextlib.asynccontextmanager
async def served(bench: Bench) -> AsyncIterator[tuple[callers.Place, asyncpg.Connection]]:
    """Serve the API from a process of its own on a fresh database, with a key for producers."""
    async with bench.server.database("bench_slots_served") as database:
        variables = {"PENSTOCK_DATABASE_URL": bench.server.dsn(database)} | SERVE_VARIABLES
        async with (
            listening(SERVE, variables) as server,
            bench.server.connect(database) as connection,
        ):
            await create_key(connection, "bench", ["produce"], who="bench", token=TOKEN)
            yield callers.Place(host=server.host, port=server.port, token=TOKEN), connection


async def call(verb: str, place: callers.Place, **arguments: object) -> dict[str, object]:
    """Let a process of its own call the API; return what it measured."""
    text = json.dumps({"place": asdict(place), **arguments})
    try:
        return await answer((sys.executable, "-m", "bench.callers", verb, text))
    except NoAnswer as exc:
        raise BookingFailed(str(exc)) from exc


async def check_count(connection: asyncpg.Connection, *, answered: int) -> None:
    """Raise BookingFailed unless there is one slot for each answer."""
    slots = await connection.fetchval(COUNT)
    if answered != slots:
        raise BookingFailed(f"{answered:,} answers, but {slots:,} slots")
