"""A domain as the app sees it: what it declares, and what its factory builds when the app opens.

The declaration is plain data: commands, settings and migrations are needed without a database.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import click
from pydantic_settings import BaseSettings

from penstock.base.errors import PenstockError
from penstock.base.meter import Metric
from penstock.contract.check import Check
from penstock.contract.http import Endpoint
from penstock.contract.resources import Resources
from penstock.kernel.guard import DEFAULT_GUARDS
from penstock.kernel.kind import AnyKind
from penstock.kernel.lane import FIXED_ENDING
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
    """One table of the dashboard: its title and its rows, read from the database.

    No dashboard shows it yet.
    """

    title: str
    read: Callable[[Connection], Awaitable[Sequence[Mapping[str, object]]]]


@dataclass(frozen=True, slots=True)
class FixedField:
    """A field of a lane's policy that a variable of the environment sets at every start.

    A process without the variable leaves the field and its guard as they are.
    """

    field: str
    value: Any
    variable: str

    @property
    def pointer(self) -> str:
        """Completes a refusal to change the field otherwise."""
        return f"{self.variable}{FIXED_ENDING}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedLane:
    """A lane that belongs to the domain: the policy that it starts with, and its guards.

    `guards` are verbs, and `set:` with the name of a policy field, that are refused to others, each
    with what to use instead. Those of DEFAULT_GUARDS are refused too, unless `allows` has them.
    """

    name: str
    policy: Mapping[str, Any] = field(default_factory=dict[str, Any])
    guards: Mapping[str, str] = field(default_factory=dict[str, str])
    allows: Sequence[str] = ()

    @property
    def all_guards(self) -> dict[str, str]:
        """Return what is refused to others: the defaults that are not allowed, and `guards`."""
        defaults = {key: DEFAULT_GUARDS[key] for key in DEFAULT_GUARDS if key not in self.allows}
        return defaults | dict(self.guards)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """A request to try on a fresh database: `penstock up` prints it as a command for a shell."""

    what: str
    path: str  # Of a POST.
    body: str  # JSON, between single quotes of a shell.


FindKinds: TypeAlias = Callable[[], Awaitable[Sequence[AnyKind]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """What runs: built when the app opens, with its resources, and closed when it closes.

    `find_kinds` returns those of lanes that rows of the domain name: workers look for them every
    few seconds, so a row needs no restart. `apis` are objects that Python code gets by their type,
    with `app.api(Mailer)`. `fixed_fields` are set for a lane at every start, also for one that
    exists already. `close` is called in the reverse order, as what was opened last may use what was
    opened first.
    """

    kinds: Sequence[AnyKind] = ()
    find_kinds: FindKinds | None = None
    endpoints: Sequence[Endpoint] = ()
    services: Sequence[Service] = ()
    apis: Sequence[object] = ()
    fixed_fields: Mapping[str, Sequence[FixedField]] = field(
        default_factory=dict[str, Sequence[FixedField]]
    )
    close: Sequence[Callable[[], Awaitable[None]]] = ()

    def built_on(self, closes: Sequence[Callable[[], Awaitable[None]]]) -> "Runtime":
        """Return it with what it was built on: that is closed after what the domain has opened."""
        return replace(self, close=(*closes, *self.close))


DomainFactory: TypeAlias = Callable[[Resources], Runtime]


def _build_nothing(_resources: Resources) -> Runtime:
    return Runtime()


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """One dispatcher, declared. Its name is what PENSTOCK_DOMAINS lists.

    `migration_packages` hold `migrations/` and `functions/`. `lanes` are those that belong to it,
    `settings` its sections of the environment, `commands` its part of the command line, `hint` a
    first request for a new user.
    """

    name: str
    build: DomainFactory = _build_nothing
    migration_packages: Sequence[str] = ()
    lanes: Sequence[OwnedLane] = ()
    settings: Sequence[type[BaseSettings]] = ()
    errors: Sequence[type[PenstockError]] = ()
    metrics: Sequence[Metric] = ()
    commands: Sequence[click.Command] = ()
    checks: Sequence[Check] = ()
    panels: Sequence[Panel] = ()
    hint: Hint | None = None
