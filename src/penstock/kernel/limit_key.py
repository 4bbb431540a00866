"""Limits per key: what a lane's policy limits, the keys of an item, and the gate they pass.

The kernel declares the gate; the app supplies it.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Meta

NAME = r"^[a-z0-9][a-z0-9_-]{0,62}$"  # As the tables' CHECKs.


class KeyLimit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limit of each value of a limit key; None is no limit, and one of them is given.

    `rate` is in starts per second, evenly spaced; `concurrency` is the number of handlers at once.
    """

    rate: Annotated[float, Meta(ge=0.001, le=1_000_000)] | None = None
    concurrency: Annotated[int, Meta(ge=1, le=10_000)] | None = None

    def __post_init__(self) -> None:
        if self.rate is None and self.concurrency is None:
            raise ValueError("needs a rate or a concurrency")


KeyLimits: TypeAlias = dict[Annotated[str, Meta(pattern=NAME)], KeyLimit]


class LimitKey(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One limit key of an item, and its limit."""

    name: str
    value: str
    limit: KeyLimit


class StartRefused(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The item must not start now; a key is at its limit, and the item's turn is in `after`."""

    key: LimitKey
    limit: Literal["rate", "concurrency"]
    after: timedelta


class StartGate(Protocol):
    """Admits starts of items under the limits of all their keys."""

    async def admit(
        self, lane: str, keys: Sequence[LimitKey], *, timeout: timedelta
    ) -> object | StartRefused:
        """Return once the item may start, with what to pass to `leave`; all keys admit, or none.

        `timeout` is that of the handler: longer than that, no place of a key is held for it.
        """
        ...

    async def leave(self, admitted: Sequence[object]) -> None:
        """Return the places that items had; their attempts have ended."""
        ...


def limits_of(keys: Mapping[str, str], limits: KeyLimits | None) -> list[LimitKey]:
    """Return the keys of an item that the policy of its lane limits."""
    return [
        LimitKey(name=name, value=value, limit=limits[name])
        for name, value in keys.items()
        if limits is not None and name in limits
    ]


def refusal_reason(name: str, value: str, limit: str) -> str:
    """Return what is recorded of a refused start."""
    return f"limit key {name}={value} is at its {limit}"
