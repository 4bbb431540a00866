"""What a domain hands to the app, and what it gets from it. The only door between the two."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.base.clock import Clock
from penstock.base.settings import Settings
from penstock.kernel.kind import AnyKind, Kind
from penstock.postgres.pool import Pool

__all__ = ["AnyKind", "Domain", "Kind", "Resources"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What the app lends to a domain while it runs."""

    pool: Pool
    settings: Settings
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """One dispatcher: its handlers and the policy that its lanes start with."""

    name: str
    kinds: Sequence[AnyKind]
    policies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
