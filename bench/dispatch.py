"""Our side of the webhook bars: events accepted, workers in processes of their own, what was done.

Each measurement gets a fresh database. Workers are `penstock worker`, so that what is measured is
what people run: all of its guards, its sweeper and its polling.
"""

import asyncio
import base64
import contextlib
import re
import sys
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from bench import callers
from bench.booking import SERVE, TOKEN
from bench.events import TYPE, data
from bench.measure import Bench
from bench.posting import LOOPBACK
from bench.process import Running, listening, running
from penstock import Penstock
from penstock.base import log
from penstock.base.vault import Vault
from penstock.domains.webhooks.accept import accept_events
from penstock.domains.webhooks.domain import LANE
from penstock.domains.webhooks.event import AcceptedEvent, NewEvent
from penstock.domains.webhooks.subscription import NewSubscription, SubscriptionService
from penstock.integrations.http_client import Client, Egress
from penstock.kernel.api_keys import create_key
from penstock.kernel.lane import set_lane
from penstock.postgres.pool import Connection, Pool

DATABASE: Final = "bench_webhooks"
WHO: Final = "bench"
CHUNK: Final = 1000
LOOK_SECONDS: Final = 0.05  # The end of a run is seen so much too late at most.

WORK: Final = (sys.executable, "-m", "penstock.cli", "worker", "--app", "bench.plain:app")
WORKING: Final = re.compile(rb"penstock works on ")
SECRET_KEY: Final = b"a key of 32 bytes for the bench "
VARIABLES: Final = {
    "PENSTOCK_EGRESS_ALLOW": str(LOOPBACK),
    "PENSTOCK_SECRET_KEY": base64.b64encode(SECRET_KEY).decode(),
    "PENSTOCK_LOG_LEVEL": "warning",  # A line per failed delivery is not what is measured.
    "PENSTOCK_SHUTDOWN_GRACE_SECONDS": "1",  # What is under way at the end does not count.
}

IS_SETTLED: Final = """
SELECT clock_timestamp() AS seen_at,
    NOT EXISTS (SELECT FROM penstock.ready)
        AND NOT EXISTS (SELECT FROM penstock.parked)
        AND NOT EXISTS (SELECT FROM penstock.lease) AS is_settled
"""
DELIVERED: Final = """
SELECT min(claimed_at) AS began_at, count(*) FILTER (WHERE outcome = 'done') AS deliveries
FROM penstock.attempt
"""
LOST: Final = "SELECT count(*) FROM penstock.attempt WHERE outcome = 'lost'"
DELIVERED_SINCE: Final = """
SELECT count(*) FROM penstock.attempt WHERE settled_at >= $1 AND outcome = 'done'
"""
# For connections that are opened from then on; the parameters would be megabytes.
LOG_STATEMENTS: Final = (
    f"ALTER DATABASE {DATABASE} SET log_statement = 'all'",
    f"ALTER DATABASE {DATABASE} SET log_parameter_max_length = 0",
)
COUNT_EVENTS: Final = "SELECT count(*) FROM penstock.webhook_event"


class DispatchFailed(Exception):
    """A run did not end as it must; the text says how it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A fresh database with subscriptions, and nobody who works on it yet."""

    bench: Bench
    database: str
    pool: Pool

    @property
    def variables(self) -> dict[str, str]:
        """What our processes need to know."""
        return VARIABLES | {"PENSTOCK_DATABASE_URL": self.bench.server.dsn(self.database)}


@contextlib.asynccontextmanager
async def prepared(
    bench: Bench, subscriptions: Sequence[NewSubscription], *, lane: str = LANE, **policy: Any
) -> AsyncGenerator[Scene]:
    """Make a database with these subscriptions, and change the lane's policy."""
    log.configure("warning")
    service = SubscriptionService(vault=Vault(SECRET_KEY), poster=Client(Egress((LOOPBACK,))))
    bench.report.doing("penstock: subscriptions")
    async with (
        bench.server.database(DATABASE) as database,
        Penstock(bench.server.dsn(database)) as app,
    ):
        async with app.pool.acquire() as db:
            for each in subscriptions:
                await service.create(db, each, who=WHO)
            if policy:
                await set_lane(db, lane, who=WHO, **policy)
        yield Scene(bench=bench, database=database, pool=app.pool)


# ---------------------------------------------------------------------------------- events in


async def accept(scene: Scene, count: int) -> None:
    """Accept events beforehand, in batches."""
    scene.bench.report.doing(f"penstock: accept {count:,}", count)
    async with scene.pool.acquire() as db:
        for first in range(0, count, CHUNK):
            numbers = range(first, min(first + CHUNK, count))
            await accept_some(db, [new_event(number) for number in numbers])
            scene.bench.report.progress(numbers.stop)


async def accept_some(db: Connection, events: Sequence[NewEvent]) -> list[AcceptedEvent]:
    """Accept new events that one subscription each wants."""
    accepted = await accept_events(db, events)
    for each in accepted:
        if (each.outcome, each.deliveries) != ("accepted", 1):
            raise DispatchFailed(f"an event was {each.outcome} for {each.deliveries} subscriptions")
    return accepted


def new_event(number: int, event_type: str = TYPE, *, name: str = "event") -> NewEvent:
    """Return the event of a number."""
    return NewEvent(type=event_type, data=data(number).decode(), id=f"{name}-{number}")


def number_of(event_id: str) -> int:
    """Return the number that an event was made from."""
    return int(event_id.rpartition("-")[2])


@contextlib.asynccontextmanager
async def serving(scene: Scene) -> AsyncGenerator[callers.Place]:
    """Serve the API from a process of its own, with a key for producers."""
    async with (
        listening(SERVE, scene.variables) as server,
        scene.pool.acquire() as db,
    ):
        await create_key(db, WHO, ["produce"], who=WHO, token=TOKEN)
        yield callers.Place(host=server.host, port=server.port, token=TOKEN)


async def check_events(scene: Scene, *, accepted: int) -> None:
    """Raise DispatchFailed unless there are so many events."""
    events = await scene.pool.fetchval(COUNT_EVENTS)
    if accepted != events:
        raise DispatchFailed(f"{accepted:,} were answered, but there are {events:,} events")


# ------------------------------------------------------------------------------ deliveries out


@contextlib.asynccontextmanager
async def working(
    scene: Scene, *, lane: str = LANE, variables: Mapping[str, str] | None = None
) -> AsyncGenerator[Running]:
    """Run a worker of one lane in a process of its own."""
    command = (*WORK, "--lane", lane)
    known = {**scene.variables, **(variables or {})}
    async with running(command, known, ready=WORKING) as process:
        yield process


async def drain(db: Connection, *, events: int, seconds_max: float) -> float:
    """Wait until workers have delivered all; return the seconds that it took.

    From the first claim to the last attempt recorded, both by the database's clock.
    """
    ended_at = await settled(db, seconds_max=seconds_max)
    found = await db.fetchrow(DELIVERED)
    assert found is not None
    if found["deliveries"] != events:
        raise DispatchFailed(f"{events:,} events, but {found['deliveries']:,} deliveries")
    took = ended_at - found["began_at"]
    return took.total_seconds()


async def settled(db: Connection, *, seconds_max: float) -> datetime:
    """Wait until nothing is due, parked or leased; return when that was seen."""
    until = time.monotonic() + seconds_max
    while time.monotonic() < until:
        found = await db.fetchrow(IS_SETTLED)
        assert found is not None
        if found["is_settled"]:
            return found["seen_at"]
        await asyncio.sleep(LOOK_SECONDS)
    raise DispatchFailed(f"not everything was delivered in {seconds_max:g} s")


async def deliveries_since(db: Connection, began_at: datetime) -> int:
    """Return how many deliveries were recorded since an instant."""
    return int(await db.fetchval(DELIVERED_SINCE, began_at))
