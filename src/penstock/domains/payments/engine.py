"""Which engine executes a batch: the one that the row of its item type names when it is claimed."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import TypeAlias, cast

from penstock.domains.payments.loader import ON_TEMPORAL, Engine, LoadedPayment, PaymentRef
from penstock.kernel.item import Dead, Item, Outcome, Snooze
from penstock.postgres.pool import Connection
from penstock.postgres.statement import statement

AnyPayment: TypeAlias = LoadedPayment | PaymentRef
HandlePayments: TypeAlias = Callable[
    [list[Item[LoadedPayment]]], Awaitable[Sequence[Outcome | Exception]]
]

NO_ENGINE_WAIT = timedelta(seconds=30)  # How soon to look whether another process has the engine.
NO_ENGINES: Mapping[Engine, HandlePayments] = MappingProxyType({})
MAY_CLAIM = statement(__package__, "may_claim.sql")

NO_CONTEXT = Dead("the payment has no context")


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """The engines of this process, by name."""

    by_name: Mapping[Engine, HandlePayments]

    async def handle_many(self, items: list[Item[AnyPayment]]) -> list[Outcome | Exception]:
        """Execute payments of one lane with its engine; snooze them if this process has none."""
        outcomes: dict[int, Outcome | Exception] = {}
        for name, batch in _by_engine(items).items():
            handle = self.by_name.get(name)
            if handle is None:
                later = Snooze(NO_ENGINE_WAIT, f"no engine {name} in this process")
                outcomes |= {item.id: later for item in batch}
            else:
                ended = await handle(batch)
                outcomes |= {item.id: each for item, each in zip(batch, ended, strict=True)}
        return [outcomes.get(item.id, NO_CONTEXT) for item in items]


def takes_early(payment: AnyPayment) -> bool:
    """Return whether an item is started at once, with its wait as a delay on Temporal."""
    return isinstance(payment, LoadedPayment) and payment.engine in ON_TEMPORAL


async def may_claim(db: Connection, *, lane: str) -> bool:
    """Return whether workers claim a lane: not while a schedule on Temporal does."""
    return bool(await db.fetchval(MAY_CLAIM, lane))


def _by_engine(items: list[Item[AnyPayment]]) -> dict[Engine, list[Item[LoadedPayment]]]:
    """Return the items by engine: almost always one, as they were loaded by one statement."""
    found: dict[Engine, list[Item[LoadedPayment]]] = {}
    for item in items:
        if isinstance(item.payload, LoadedPayment):
            found.setdefault(item.payload.engine, []).append(cast("Item[LoadedPayment]", item))
    return found
