"""What webhooks declare to the app, and what is built when it opens."""

from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from penstock.contract import Domain, Finding, Hint, Kind, OwnedLane, Resources, Runtime
from penstock.domains.webhooks.accept import EventBatcher, KafkaEventSink, Publish
from penstock.domains.webhooks.deliver import Deliver
from penstock.domains.webhooks.errors import (
    EventConflict,
    ReplayConflict,
    UnknownEvent,
    UnknownSubscription,
)
from penstock.domains.webhooks.http import Api, endpoints
from penstock.domains.webhooks.loader import DeliveryLoader, DeliveryRef
from penstock.domains.webhooks.prepared_subscription import Poster
from penstock.domains.webhooks.replay import LANE as REPLAY_LANE
from penstock.domains.webhooks.replay import OWNER, ReplayRef, ReplayStep
from penstock.domains.webhooks.reseal import count_seals
from penstock.domains.webhooks.settings import WebhookSettings
from penstock.domains.webhooks.subscription import Checker, SubscriptionService, disable
from penstock.limits.gate import Gate

LANE = "penstock.webhooks"
ORDERED_LANE = "penstock.webhooks.ordered"

# Longer than any subscription's own timeout and the wait for its turn: it ends the call itself, and
# reports the more exact failure.
HANDLER_TIMEOUT = timedelta(seconds=90)

# As the dispatcher that this replaces repeats. Many calls may wait for slow endpoints at once, so
# that the others still find a place.
POLICY: dict[str, Any] = {
    "max_attempts": 5,
    "backoff_base": timedelta(seconds=1),
    "backoff_multiplier": 2.0,
    "backoff_cap": timedelta(hours=1),
    "backoff_jitter": 0.1,
    "concurrency": 1_000,
}


SEND_EVENTS = "use POST /events, `penstock event send` or penstock.accept_event"

# A receiver has to recognise a repeated delivery anyway, so operators may choose.
DELIVERIES_ALLOW = ("set:on_dead_head", "set:on_lost")


class HttpClient(Poster, Checker, Protocol):
    """The HTTP client: checks what is stored, and sends."""


def build(
    resources: Resources, *, poster: HttpClient, gate: Gate, publish: Publish | None = None
) -> Runtime:
    """Build the domain; its calls go out through `gate`, by `poster`.

    With `publish`, single events go there and not into the database.
    """
    pool, vault = resources.pool, resources.vault
    loader = DeliveryLoader(vault=vault, poster=poster, clock=resources.clock)
    deliver = Deliver(
        gate=gate,
        poster=poster,
        disable=partial(disable, pool),
        log=resources.log,
        clock=resources.clock,
    )
    api = Api(
        pool=pool,
        sink=EventBatcher(pool) if publish is None else KafkaEventSink(publish),
        service=SubscriptionService(vault=vault, poster=poster),
        gate=gate,
        data_bytes_max=resources.settings.payload_bytes_max,
    )
    deliveries = (
        Kind(
            lane=lane,
            payload_type=DeliveryRef,
            handle=deliver,
            preload=loader.preload,
            timeout=HANDLER_TIMEOUT,
        )
        for lane in (LANE, ORDERED_LANE)
    )
    replays = Kind(lane=REPLAY_LANE, payload_type=ReplayRef, handle=ReplayStep(pool))
    return Runtime(kinds=(*deliveries, replays), endpoints=endpoints(api))


async def check_seals(resources: Resources) -> Finding:
    """Warn about secrets that no key here opens, or that an older key has sealed."""
    vault = resources.vault
    async with resources.pool.acquire() as db:
        seals = await count_seals(db)
    unreadable = sum(each.secrets + each.headers for each in seals if not vault.knows(each.mark))
    if unreadable:
        detail = f"{unreadable:,} are sealed with a key that is not in PENSTOCK_SECRET_KEY here"
        return Finding("warn", "secrets", detail)
    old = sum(each.secrets + each.headers for each in seals if each.mark != vault.mark)
    if old:
        detail = f"{old:,} are sealed with an older key; run: penstock subscription reseal"
        return Finding("warn", "secrets", detail)
    return Finding("ok", "secrets", "sealed with the current key" if seals else "none")


# Without what carries deliveries: `compose.webhooks` adds the factory and the commands.
WEBHOOKS = Domain(
    name=OWNER,
    migration_packages=("penstock.domains.webhooks",),
    lanes=(
        OwnedLane(
            name=LANE,
            policy=POLICY,
            guards={
                "enqueue": SEND_EVENTS,
                "set:ordering": f"deliveries in order are in the lane {ORDERED_LANE}",
            },
            allows=DELIVERIES_ALLOW,
        ),
        OwnedLane(
            name=ORDERED_LANE,
            # A dead head is set aside: one event that cannot be delivered must not hold up all
            # that come after it for ever.
            policy=POLICY | {"ordering": "per_key", "on_dead_head": "park"},
            guards={
                "enqueue": SEND_EVENTS,
                "set:ordering": "subscriptions with an ordering key rely on it",
            },
            allows=DELIVERIES_ALLOW,
        ),
        OwnedLane(
            name=REPLAY_LANE,
            policy={"max_attempts": 1_000, "concurrency": 4},
            guards={
                "enqueue": "use POST /replays or `penstock replay start`",
                "set:on_lost": "a step that was lost is repeated, and sends nothing twice",
            },
        ),
    ),
    settings=(WebhookSettings,),
    errors=(EventConflict, ReplayConflict, UnknownEvent, UnknownSubscription),
    checks=(check_seals,),
    hint=Hint(
        what="an event for its subscriptions",
        path="/events",
        body='{"type": "order.paid", "id": "order-1-paid", "data": {"order": 1}}',
    ),
)
