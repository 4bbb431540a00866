"""Connect the outbox to its rails on the HTTP client, and its events to webhooks."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias

from penstock.base.log import Logger, get_logger
from penstock.base.settings import Settings, settings
from penstock.compose.events import choose_announce
from penstock.compose.payments import make_listener
from penstock.contract import Domain, Resources, Runtime
from penstock.contract.announce import announce_nothing
from penstock.domains.outbox.audit.archive import Archive
from penstock.domains.outbox.commands import outbox_group
from penstock.domains.outbox.crash_point import CrashPoint, never_crash
from penstock.domains.outbox.domain import OUTBOX
from penstock.domains.outbox.event import Announce

Closes: TypeAlias = list[Callable[[], Awaitable[None]]]


def build(resources: Resources, *, crash_point: CrashPoint = never_crash) -> Runtime:
    """Build the domain on what the environment names; `crash_point` is for tests."""
    # Imported here: other commands start without SQLite and the adapters.
    from penstock.compose.rails import make_rails  # noqa: PLC0415
    from penstock.domains.outbox.rails.simulator.service import SimulatorService  # noqa: PLC0415
    from penstock.domains.outbox.rails.simulator.settings import SimulatorSettings  # noqa: PLC0415
    from penstock.domains.outbox.runtime import build as build_domain  # noqa: PLC0415

    closes: Closes = []
    simulator = SimulatorService(resources=resources, chosen=resources.section(SimulatorSettings))
    runtime = build_domain(
        resources,
        known_rails=make_rails(resources, simulator, closes),
        simulator=simulator,
        listeners=_choose_listeners(resources.settings, resources.log),
        crash_point=crash_point,
    )
    return runtime.built_on(closes)


def make_archive() -> Archive:
    """Return the archive that commands use. It counts nothing: nobody scrapes a command."""
    log = get_logger()
    return Archive(log=log, listeners=_choose_listeners(settings(), log))


def _choose_listeners(chosen: Settings, log: Logger) -> list[Announce]:
    """Return the listeners of outbox events: payments, and webhooks if this process runs them."""
    listener, announce = make_listener(chosen, log=log), choose_announce(chosen)
    return [listener] if announce is announce_nothing else [listener, announce]


DOMAIN: Domain = replace(OUTBOX, build=build, commands=(outbox_group(make_archive),))
