"""Results of payments that could not be applied when the outbox announced them.

The outbox must not fail because a payment cannot be moved: its rail has paid. So a result that the
database refuses, such as in a deadlock, is kept in the outbox's transaction and applied from here.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import asyncpg
import msgspec

from penstock.base.log import Logger
from penstock.domains.payments.results import PaymentResult, PaymentResults
from penstock.postgres.pool import CONNECTION_LOST, Connection, Pool, database_away
from penstock.postgres.statement import statement

KEEP_RESULTS = statement(__package__, "keep_results.sql")
CLAIM_KEPT_RESULTS = statement(__package__, "claim_kept_results.sql")
FORGET_KEPT_RESULT = statement(__package__, "forget_kept_result.sql")

INTERVAL = timedelta(seconds=5)
PAGE_MAX = 100
# Longer than a page takes: after it, another process may look.
RETRY_WAIT = timedelta(minutes=1)


async def apply_or_keep(
    db: Connection, results: Sequence[PaymentResult], *, by: PaymentResults, log: Logger
) -> None:
    """Apply results in the transaction of the connection, or keep them there for later."""
    try:
        async with db.transaction():
            await by.apply(db, results)
    except CONNECTION_LOST:
        raise
    except asyncpg.PostgresError as refused:
        log.error("payment_results.kept", item_count=len(results), reason=type(refused).__name__)
        await db.execute(
            KEEP_RESULTS,
            [each.payment_id for each in results],
            [each.outbox_id for each in results],
            [each.status for each in results],
            [each.rail_reference for each in results],
            [each.reason for each in results],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptResults:
    """The service that applies what was kept; any number of processes may run it."""

    pool: Pool
    results: PaymentResults
    log: Logger

    async def run(self, stop: asyncio.Event) -> None:
        """Apply what is kept until `stop` is set. Raises DatabaseAway; supervise it."""
        while not stop.is_set():
            with database_away():
                claimed = await self.apply_once()
            if not claimed:
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), INTERVAL.total_seconds())

    async def apply_once(self) -> int:
        """Apply the results that are due, each in its own transaction; return how many were."""
        async with self.pool.acquire() as db:
            rows = await db.fetch(CLAIM_KEPT_RESULTS, PAGE_MAX, RETRY_WAIT)
            for row in sorted(rows, key=lambda row: row["id"]):
                result = msgspec.convert(dict(row.items()), PaymentResult)
                await self._apply(db, row["id"], result)
        return len(rows)

    async def _apply(self, db: Connection, kept_id: int, result: PaymentResult) -> None:
        try:
            async with db.transaction():
                await self.results.apply(db, [result])
                await db.execute(FORGET_KEPT_RESULT, kept_id)
        except CONNECTION_LOST:
            raise
        except asyncpg.PostgresError as refused:
            self.log.error("payment_results.kept", item_count=1, reason=type(refused).__name__)
