"""A domain as the app sees it: what it declares, and what its factory builds when the app opens.

The declaration is plain data: commands, settings and migrations are needed without a database.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import click
from pydantic_settings import BaseSettings

from penstock.base.errors import PenstockError
from penstock.base.meter import Metric
from penstock.contract.check import Check
from penstock.contract.http import Endpoint
from penstock.contract.resources import Resources
from penstock.kernel.kind import AnyKind
from penstock.postgres.pool import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A background loop. It is restarted when it fails, and must return soon after `stop` is set.

    Services start with the worker, once the lanes exist, and are stopped before it: what they
    have taken in is still executed.
    """

    name: str
    run: Callable[[asyncio.Event], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One table of the dashboard: its title and its rows, read from the database."""

    title: str
    read: Callable[[Connection], Awaitable[Sequence[Mapping[str, object]]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """What runs: built when the app opens, with its resources, and closed when it closes.

    `close` is called in the reverse order, as what was opened last may use what was opened first.
    """

    kinds: Sequence[AnyKind] = ()
    endpoints: Sequence[Endpoint] = ()
    services: Sequence[Service] = ()
    close: Sequence[Callable[[], Awaitable[None]]] = ()


DomainFactory: TypeAlias = Callable[[Resources], Runtime]


def _build_nothing(_resources: Resources) -> Runtime:
    return Runtime()


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """One dispatcher, declared. Its name is what PENSTOCK_DOMAINS lists.

    `migration_packages` hold `migrations/` and `functions/`. `policies` are what its lanes start
    with, `settings` its sections of the environment, `commands` its part of the command line.
    """

    name: str
    build: DomainFactory = _build_nothing
    migration_packages: Sequence[str] = ()
    policies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    settings: Sequence[type[BaseSettings]] = ()
    errors: Sequence[type[PenstockError]] = ()
    metrics: Sequence[Metric] = ()
    commands: Sequence[click.Command] = ()
    checks: Sequence[Check] = ()
    panels: Sequence[Panel] = ()
