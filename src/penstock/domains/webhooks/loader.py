"""Load what claimed deliveries need, for all of them at once: bodies and prepared subscriptions.

An event never changes. A subscription may change at any time, so every look-up brings the version
that counts now, and a subscription of an older one is made again.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from penstock.base.clock import Clock, instant
from penstock.base.vault import Vault
from penstock.domains.webhooks.body import compose
from penstock.domains.webhooks.prepared_subscription import (
    Poster,
    PreparedSubscription,
    read_prepared,
)
from penstock.kernel.item import Item
from penstock.postgres.pool import Connection, Row
from penstock.postgres.statement import statement

LOAD_DELIVERIES = statement(__package__, "load_deliveries.sql")

PREPARED_MAX = 10_000  # Kept ready; more are made again when they are needed.


class DeliveryRef(Struct, frozen=True):
    """An item's payload: which event goes to which subscription."""

    event: int
    subscription: int


class Delivery(Struct, frozen=True):
    """One event for one subscriber."""

    event_id: str
    body: bytes
    subscription: PreparedSubscription


class DeliveryLoader:
    """Where deliveries are made ready."""

    def __init__(self, *, vault: Vault, poster: Poster, clock: Clock) -> None:
        self._vault = vault
        self._poster = poster
        self._clock = clock
        self._prepared: dict[int, PreparedSubscription] = {}

    async def preload(
        self, db: Connection, items: Sequence[Item[DeliveryRef]]
    ) -> Sequence[Delivery | DeliveryRef]:
        """Return deliveries as they are to be made now, in the order of the items.

        Where the event or the subscription is gone, there is only the reference.
        """
        references = [item.payload for item in items]
        rows = await db.fetch(
            LOAD_DELIVERIES,
            [each.event for each in references],
            [each.subscription for each in references],
        )
        versions: dict[int, int | None] = {
            each.subscription: row["version"] for each, row in zip(references, rows, strict=True)
        }
        await self._refresh(db, versions)
        return [
            _to_delivery(row, self._prepared.get(each.subscription)) or each
            for each, row in zip(references, rows, strict=True)
        ]

    async def _refresh(self, db: Connection, versions: Mapping[int, int | None]) -> None:
        """Make those subscriptions again whose version has changed or whose secret has retired."""
        now = instant(self._clock)
        if len(self._prepared) > PREPARED_MAX:
            self._prepared.clear()
        stale = [
            number
            for number, version in versions.items()
            if version is not None
            and (
                (known := self._prepared.get(number)) is None
                or known.version != version
                or known.stale_at <= now
            )
        ]
        if stale:
            self._prepared |= await read_prepared(db, stale, vault=self._vault, poster=self._poster)


def _to_delivery(row: Row, subscription: PreparedSubscription | None) -> Delivery | None:
    # In the order of the statement: by name they would take twice as long.
    event_id, event_type, source, accepted_at, data, version = row
    if event_id is None or version is None or subscription is None:
        return None
    body = compose(
        event_id=event_id, event_type=event_type, source=source, occurred_at=accepted_at, data=data
    )
    return Delivery(event_id, body, subscription)
