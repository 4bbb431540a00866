"""What a domain hands to the app, and what it gets from it. The only door between the two."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from penstock.base.settings import Settings
from penstock.kernel.kind import AnyKind, Kind
from penstock.postgres.pool import Pool

__all__ = ["AnyKind", "Build", "Domain", "Kind", "Resources"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What the app lends to a domain while it runs."""

    pool: Pool
    settings: Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """One dispatcher: its handlers, the policy that its lanes start with, and its migrations."""

    name: str
    kinds: Sequence[AnyKind]
    owners: Sequence[str] = ()  # Packages with migrations of its own.
    policies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])


Build: TypeAlias = Callable[[Resources], Domain]
