"""Send invoices and delete old ones. A function of the database creates them."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from penstock import Item
from penstock.base.log import Logger
from penstock.base.meter import Meter
from penstock.contract import Counter, Gauge
from penstock.postgres.pool import Pool
from penstock.postgres.statement import statement

LANE = "invoices"
FORGET_EVERY = timedelta(hours=1)  # Invoices are kept for years, so an hour more does not matter.

MARK_SENT = statement(__package__, "mark_sent.sql")
FORGET_OLD = statement(__package__, "forget_old.sql")

SENT = Counter("invoices_sent_total", "Invoices sent.")
OPEN = Gauge(
    "invoices_open", "Invoices not sent yet.", sql=statement(__package__, "count_open.sql")
)


class InvoiceRef(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of an item."""

    number: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoices:
    """The handler and the service."""

    pool: Pool
    log: Logger
    meter: Meter
    sender: str
    keep: timedelta

    async def send(self, item: Item[InvoiceRef]) -> None:
        """Send one invoice; a repeat changes nothing."""
        # A real domain calls its mail provider here, with no transaction open.
        if await self.pool.fetchval(MARK_SENT, item.payload.number, self.sender):
            self.meter.count(SENT, 1)
            self.log.info("invoice.sent", invoice_id=item.payload.number)

    async def forget_forever(self, stop: asyncio.Event) -> None:
        """Delete old invoices until `stop` is set; if this raises, Penstock calls it again."""
        while not stop.is_set():
            forgotten = await self.pool.fetchval(FORGET_OLD, self.keep)
            if forgotten:
                self.log.info("invoices.forgotten", invoice_count=forgotten)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), FORGET_EVERY.total_seconds())
