"""Connect webhooks to the HTTP client, the gate of the process, and Kafka."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from penstock.base.errors import MissingExtra
from penstock.base.vault import Vault
from penstock.compose.egress import EgressSettings, hint_at_setting, make_client
from penstock.compose.kafka import (
    KafkaSettings,
    connection_options,
    make_consumer,
    require_bootstrap,
)
from penstock.console.database import find_dsn
from penstock.contract import Domain, Resources, Runtime, Service
from penstock.contract.resources import choose_vault
from penstock.domains.webhooks.accept import Publish, accept_messages
from penstock.domains.webhooks.commands import commands
from penstock.domains.webhooks.domain import WEBHOOKS
from penstock.domains.webhooks.domain import build as build_domain
from penstock.domains.webhooks.settings import WebhookSettings
from penstock.domains.webhooks.subscription import SubscriptionService
from penstock.integrations.http_client import Egress
from penstock.integrations.kafka import metrics as kafka_metrics

Closes: TypeAlias = list[Callable[[], Awaitable[None]]]


def build(resources: Resources, *, egress: Egress | None = None) -> Runtime:
    """Build the domain on the integrations that the environment names.

    Without `egress`, the addresses of the environment may be reached.
    """
    poster = make_client(egress)
    closes: Closes = [poster.close]
    runtime = build_domain(
        resources,
        poster=poster,
        gate=resources.gate,
        publish=_choose_publish(resources, closes),
    )
    return runtime.built_on(closes)


def _choose_publish(resources: Resources, closes: Closes) -> Publish | None:
    """Return what publishes single events, or None where they go into the database."""
    chosen = resources.section(WebhookSettings)
    if chosen.events_to == "database":
        return None
    bootstrap = require_bootstrap("is needed when PENSTOCK_EVENTS_TO is kafka")
    try:
        from penstock.integrations.kafka.publisher import Publisher  # noqa: PLC0415  An extra.
    except ModuleNotFoundError as absent:
        raise MissingExtra("kafka", "PENSTOCK_EVENTS_TO") from absent
    publisher = Publisher(
        bootstrap, chosen.kafka_topic, log=resources.log, options=connection_options()
    )
    closes.append(publisher.close)
    return publisher.publish


def open_subscriptions(data_dir: Path | None = None) -> SubscriptionService:
    """Return the service that commands use."""
    return make_subscriptions(choose_vault(find_dsn(data_dir), data_dir))


def make_subscriptions(vault: Vault, egress: Egress | None = None) -> SubscriptionService:
    """Return the service on a vault; it holds no connection, so nothing has to be closed."""
    return SubscriptionService(vault=vault, poster=make_client(egress))


def event_consumer(resources: Resources) -> Service:
    """Return the service that accepts events from Kafka; raises BadSetting or MissingExtra."""
    chosen = resources.section(WebhookSettings)
    accept = partial(
        accept_messages, resources.pool, data_bytes_max=resources.settings.payload_bytes_max
    )
    return make_consumer(
        resources,
        accept,
        topic=chosen.kafka_topic,
        group=chosen.kafka_group,
        dead_topic=chosen.kafka_dead_topic,
    )


DOMAIN: Domain = replace(
    WEBHOOKS,
    build=build,
    settings=(*WEBHOOKS.settings, EgressSettings, KafkaSettings),
    metrics=(*WEBHOOKS.metrics, *kafka_metrics.METRICS),
    commands=commands(open_subscriptions, hint_at_setting),
)
