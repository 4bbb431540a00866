"""Latency of healthy endpoints, alone and beside as many that never answer."""

import asyncio
import time
from datetime import datetime, timedelta
from typing import Final

from bench.dispatch import DispatchFailed, Scene, accept_some, new_event, working
from bench.receiver import Receiver
from penstock.domains.webhooks.subscription import NewSubscription

ENDPOINTS: Final = 10  # Of each sort.
EVENTS_PER_SECOND: Final = 200  # To all endpoints of one sort together.
TIMEOUT: Final = timedelta(seconds=2)

TICK_SECONDS: Final = 0.02
EACH: Final = int(EVENTS_PER_SECOND * TICK_SECONDS)
WARM_UP_SECONDS: Final = 1.0  # Connections are opened and statements prepared.
ARRIVE_SECONDS_MAX: Final = 15.0


def subscriptions(healthy: Receiver, silent: Receiver) -> list[NewSubscription]:
    """Return endpoints of two servers; each has events of its own."""
    places = {"warm": healthy.url, "healthy": healthy.url, "silent": f"{silent.url}silent/"}
    return [
        NewSubscription(
            url=f"{place}{number}",
            event_types=[f"{sort}.{number}"],
            timeout=TIMEOUT,
        )
        for sort, place in places.items()
        for number in range(ENDPOINTS)
    ]


async def milliseconds(
    scene: Scene, receiver: Receiver, *, seconds: float, hang: bool
) -> list[float]:
    """Return how long each event was on its way from its acceptance to a healthy endpoint."""
    sorts = ("healthy", "silent") if hang else ("healthy",)
    async with working(scene):
        warm = await _produce(scene, "warm", seconds=WARM_UP_SECONDS)
        await _arrived(receiver, len(warm))
        accepted = await _produce(scene, *sorts, seconds=seconds)
        wanted = {id_: at for id_, at in accepted.items() if id_.startswith("healthy")}
        await _arrived(receiver, len(warm) + len(wanted))
    arrived: dict[str, float] = {}
    for event_id, at in await receiver.arrivals():
        arrived.setdefault(event_id, at)
    return [(arrived[id_] - at.timestamp()) * 1000 for id_, at in wanted.items()]


async def _produce(scene: Scene, *sorts: str, seconds: float) -> dict[str, datetime]:
    """Accept events at a steady pace, a few of a sort at a time; return when each was accepted.

    The sorts take turns, so that their transactions never overlap: what that costs would be taken
    for an effect of silent endpoints.
    """
    accepted: dict[str, datetime] = {}
    turn_seconds = TICK_SECONDS / len(sorts)
    async with scene.pool.acquire() as db:
        started = time.monotonic()
        for turn in range(round(seconds / turn_seconds)):
            await asyncio.sleep(started + turn * turn_seconds - time.monotonic())
            tick, place = divmod(turn, len(sorts))
            sort, numbers = sorts[place], range(tick * EACH, (tick + 1) * EACH)
            events = [new_event(n, f"{sort}.{n % ENDPOINTS}", name=sort) for n in numbers]
            for each in await accept_some(db, events):
                assert each.accepted_at is not None
                accepted[each.event_id] = each.accepted_at
    return accepted


async def _arrived(receiver: Receiver, count: int) -> None:
    until = time.monotonic() + ARRIVE_SECONDS_MAX
    while (arrived := await receiver.count()) < count:
        if time.monotonic() > until:
            raise DispatchFailed(f"{arrived:,} of {count:,} events have arrived")
        await asyncio.sleep(TICK_SECONDS)
