"""A domain as the app sees it: handlers, lanes, endpoints and migrations."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from penstock.base.log import Logger
from penstock.base.meter import Meter
from penstock.base.settings import Settings
from penstock.base.vault import Vault
from penstock.contract.http import Endpoint
from penstock.kernel.kind import AnyKind, Kind
from penstock.postgres.pool import Pool

__all__ = ["AnyKind", "Build", "Domain", "Kind", "Resources"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What the app lends to a domain while it runs."""

    pool: Pool
    settings: Settings
    vault: Vault
    log: Logger
    meter: Meter


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """One dispatcher: its handlers and the policy that their lanes start with, what it serves over
    HTTP, and its migrations.
    """

    name: str
    kinds: Sequence[AnyKind] = ()
    owners: Sequence[str] = ()  # Packages with migrations of its own.
    policies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    endpoints: Sequence[Endpoint] = ()
    close: Sequence[Callable[[], Awaitable[None]]] = ()  # When the app closes, in this order.


Build: TypeAlias = Callable[[Resources], Domain]
