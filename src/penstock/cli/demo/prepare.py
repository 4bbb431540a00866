"""What the flow needs in the database: slots, the policies of lanes, a relay, a subscription."""

from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_network
from math import ceil
from pathlib import Path

from penstock.base.vault import Vault, load_or_make_key, parse_keys
from penstock.cli.demo.receivers import LOOPBACK
from penstock.compose.webhooks import make_subscriptions
from penstock.domains.mail.lanes import LANE as MAIL_LANE
from penstock.domains.mail.relay import SmtpRelay, put_relay
from penstock.domains.outbox.lanes import LANE as OUTBOX_LANE
from penstock.domains.outbox.lanes import OWNER as OUTBOX
from penstock.domains.outbox.rails.registry import SIMULATOR, list_rails, put_rail
from penstock.domains.payments.lanes import LANE as PAYMENT_LANE
from penstock.domains.slots.config import set_config
from penstock.domains.webhooks.domain import LANE as WEBHOOK_LANE
from penstock.domains.webhooks.subscription import NewSubscription
from penstock.integrations.http_client import Egress
from penstock.kernel.lane import set_lane
from penstock.postgres.pool import Connection

WHO = "demo"
SLOTS = "demo"
SECOND = timedelta(seconds=1)
# The lanes, and as whom their lease is changed: the outbox guards its own.
LANES = {PAYMENT_LANE: None, OUTBOX_LANE: OUTBOX, WEBHOOK_LANE: None, MAIL_LANE: None}

# Payments that became due since the last cycle are executed in one transaction.
CYCLE = timedelta(milliseconds=100)
CATCH_UP = 1.25  # Times the rate, until what a killed worker left is made up for.
LEASE = timedelta(seconds=5)  # What a killed worker held is given back after it.
ATTEMPTS = 1_000  # Each kill costs what was in flight one.


def batch_of(rate: int) -> int:
    """Return how many payments may leave in one cycle."""
    return ceil(rate * CYCLE.total_seconds() * CATCH_UP)


def limit_of(rate: int) -> int:
    """Return how many payments may leave in any second: it has parts of one cycle more."""
    return batch_of(rate) * (round(SECOND / CYCLE) + 1)


async def prepare(
    db: Connection, folder: Path, *, rate: int, events_url: str, smtp_port: int
) -> None:
    """Plan `rate` payments for each second, and lead events and mails to the receivers.

    The rail settles at once: asking it later about each payment would take most of the time.
    """
    await set_config(db, SLOTS, who=WHO, max_per_window=rate, window_size=SECOND)
    for lane, owner in LANES.items():
        await set_lane(
            db,
            lane,
            who=WHO,
            owner=owner,
            lease=LEASE,
            max_attempts=ATTEMPTS,
            backoff_base=SECOND,
        )
    await set_lane(
        db,
        PAYMENT_LANE,
        who=WHO,
        slot_pool=SLOTS,
        batch_size=batch_of(rate),
        dispatch_interval=CYCLE,
        jitter_window=timedelta(0),
    )
    vault = Vault(*parse_keys(load_or_make_key(folder)))
    (rail,) = [each for each in await list_rails(db) if each.rail_type == SIMULATOR]
    instant = replace(rail, config={**rail.config, "is_asynchronous": False})
    await put_rail(db, instant, vault=vault, who=WHO)
    relay = SmtpRelay(name="demo", host=LOOPBACK, port=smtp_port, tls="none")
    await put_relay(db, relay, vault=vault, who=WHO)
    await make_subscriptions(vault, Egress((ip_network(LOOPBACK),))).create(
        db,
        NewSubscription(url=events_url, event_types=["payment.settled"], rate_limit=None),
        who=WHO,
    )
