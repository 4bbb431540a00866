"""The outbox with what carries it: the rails on the HTTP client, and webhooks for its events."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import msgspec

from penstock.base.log import get_logger
from penstock.base.settings import Settings, settings
from penstock.contract import Domain, Resources, Runtime
from penstock.domains.outbox.archive import Archive
from penstock.domains.outbox.commands import outbox_group
from penstock.domains.outbox.domain import OUTBOX
from penstock.domains.outbox.event import Announce, OutboxEvent, announce_nothing
from penstock.domains.outbox.probe import Probe, pass_by
from penstock.domains.webhooks.accept import accept_events
from penstock.domains.webhooks.event import NewEvent
from penstock.postgres.pool import Connection

Closes: TypeAlias = list[Callable[[], Awaitable[None]]]

SOURCE = "penstock"  # Of events about instructions.


def build(resources: Resources, *, probe: Probe = pass_by) -> Runtime:
    """Build the domain on the integrations that the environment names; `probe` is for tests."""
    # Imported here: other commands start without SQLite and the adapters.
    from penstock.compose.rails import make_rails  # noqa: PLC0415
    from penstock.domains.outbox.runtime import build as build_domain  # noqa: PLC0415
    from penstock.domains.outbox.simulator.service import SimulatorService  # noqa: PLC0415
    from penstock.domains.outbox.simulator.settings import SimulatorSettings  # noqa: PLC0415

    closes: Closes = []
    simulator = SimulatorService(resources=resources, chosen=resources.section(SimulatorSettings))
    runtime = build_domain(
        resources,
        known_rails=make_rails(resources, simulator, closes),
        simulator=simulator,
        announce=_choose_announce(resources.settings),
        probe=probe,
    )
    return replace(runtime, close=closes)


def make_archive() -> Archive:
    """Return the archive that commands use. It counts nothing: nobody scrapes a command."""
    return Archive(log=get_logger(), announce=_choose_announce(settings()))


def _choose_announce(chosen: Settings) -> Announce:
    """Return what hands events to webhooks, or to nobody if this process does not run them."""
    names = chosen.domains
    return announce_nothing if names is not None and "webhooks" not in names else _announce


async def _announce(db: Connection, events: Sequence[OutboxEvent]) -> None:
    """Accept events as webhooks, in the transaction that writes what they are about."""
    await accept_events(
        db,
        [
            NewEvent(type=each.type, data=msgspec.json.encode(each).decode(), source=SOURCE)
            for each in events
        ],
    )


DOMAIN: Domain = replace(OUTBOX, build=build, commands=(outbox_group(make_archive),))
