"""What webhooks hand to the app: their lanes and handlers, endpoints and tables."""

from datetime import timedelta
from functools import partial
from typing import Any

from penstock.contract import Domain, Kind, Resources
from penstock.domains.webhooks.accept import Inbox, Publish, Relay
from penstock.domains.webhooks.channel import Poster
from penstock.domains.webhooks.deliver import Deliver
from penstock.domains.webhooks.http import Api, endpoints
from penstock.domains.webhooks.replay import LANE as REPLAY_LANE
from penstock.domains.webhooks.replay import ReplayReference, Step
from penstock.domains.webhooks.shelf import Reference, Shelf
from penstock.domains.webhooks.subscription import Office, disable
from penstock.limits.gate import Gate

OWNER = "penstock.domains.webhooks"
LANE = "webhooks"
ORDERED_LANE = "webhooks.ordered"

# Longer than any subscription's own timeout and the wait for its turn: it ends the call itself, and
# knows better than we what has happened.
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


def build(
    resources: Resources, *, poster: Poster, gate: Gate, publish: Publish | None = None
) -> Domain:
    """Return the domain; its calls go out through `gate`, by `poster`.

    With `publish`, single events go there and not into the database.
    """
    pool, vault = resources.pool, resources.vault
    shelf = Shelf(vault=vault, poster=poster)
    deliver = Deliver(
        gate=gate,
        poster=poster,
        disable=partial(disable, pool),
        log=resources.log,
    )
    api = Api(
        pool=pool,
        inbox=Inbox(pool) if publish is None else Relay(publish),
        office=Office(vault=vault, poster=poster),
        gate=gate,
        data_bytes_max=resources.settings.payload_bytes_max,
    )
    return Domain(
        name="webhooks",
        kinds=(
            *(
                Kind(
                    lane=lane,
                    payload_type=Reference,
                    handle=deliver,
                    gather=shelf.gather,
                    timeout=HANDLER_TIMEOUT,
                )
                for lane in (LANE, ORDERED_LANE)
            ),
            Kind(lane=REPLAY_LANE, payload_type=ReplayReference, handle=Step(pool)),
        ),
        owners=(OWNER,),
        policies={
            LANE: POLICY,
            # A dead head steps aside: one event that cannot be delivered must not hold up all
            # that come after it for ever.
            ORDERED_LANE: POLICY | {"ordering": "per_key", "on_dead_head": "park"},
            REPLAY_LANE: {"max_attempts": 1_000, "concurrency": 4},
        },
        endpoints=endpoints(api),
    )
