"""Results of payments that could not be applied when the outbox announced them.

The outbox must not fail because a payment cannot be moved: its rail has paid. So a result that the
database refuses, such as in a deadlock, is kept in the outbox's transaction and applied from here.
The results of one payment are applied in the order in which they were announced.
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
from penstock.postgres.errors import DatabaseAway
from penstock.postgres.pool import CONNECTION_LOST, Connection, Pool, database_away
from penstock.postgres.statement import statement

FIND_KEPT = statement(__package__, "find_kept.sql")
KEEP_RESULTS = statement(__package__, "keep_results.sql")
LOCK_KEPT_RESULT = statement(__package__, "lock_kept_result.sql")
POSTPONE_KEPT_RESULT = statement(__package__, "postpone_kept_result.sql")
FORGET_KEPT_RESULT = statement(__package__, "forget_kept_result.sql")

INTERVAL = timedelta(seconds=5)
PAGE_MAX = 100
RETRY_WAIT = timedelta(minutes=1)  # What the database refuses at once, it may refuse for a while.


async def apply_or_keep(
    db: Connection, results: Sequence[PaymentResult], *, by: PaymentResults, log: Logger
) -> None:
    """Apply results in the transaction of the connection, or keep them there for later.

    Raises DatabaseAway if the database does neither. The outbox then repeats its transaction:
    if it committed without the result, nothing would ever move the payment.
    """
    try:
        if await by.has_payments(db):
            await _apply_or_keep(db, results, by=by, log=log)
    except CONNECTION_LOST:
        raise
    except asyncpg.PostgresError as refused:
        reason = f"results of payments cannot be kept: {type(refused).__name__}"
        raise DatabaseAway(reason) from refused


async def _apply_or_keep(
    db: Connection, results: Sequence[PaymentResult], *, by: PaymentResults, log: Logger
) -> None:
    rows = await db.fetch(FIND_KEPT, [each.payment_id for each in results])
    waiting = {row[0] for row in rows}
    # An older result of these is kept: applied after a newer one, it would replace the newer one.
    behind = [each for each in results if each.payment_id in waiting]
    if behind:
        await _keep(db, behind)
    others = [each for each in results if each.payment_id not in waiting]
    if not others:
        return
    try:
        async with db.transaction():
            await by.apply(db, others)
    except asyncpg.PostgresError as refused:
        if _is_lost(refused):
            raise
        log.error("payment_results.kept", item_count=len(others), reason=type(refused).__name__)
        await _keep(db, others)


def _is_lost(failure: asyncpg.PostgresError) -> bool:
    """Return whether nothing can be kept either; a deadlock undoes a savepoint alone."""
    is_deadlock = isinstance(failure, asyncpg.DeadlockDetectedError)
    return isinstance(failure, CONNECTION_LOST) and not is_deadlock


async def _keep(db: Connection, results: Sequence[PaymentResult]) -> None:
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
                tried = await self.apply_once()
            if not tried:
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), INTERVAL.total_seconds())

    async def apply_once(self) -> int:
        """Apply the results that are due, up to a page; return how many were tried."""
        async with self.pool.acquire() as db:
            for tried in range(PAGE_MAX):
                if not await self._apply_next(db):
                    return tried
        return PAGE_MAX

    async def _apply_next(self, db: Connection) -> bool:
        """Apply one result in a transaction that locks it; return whether one was due.

        The lock ends with the transaction: a process that dies leaves the result as it was, and
        no other process applies a later one of the same payment meanwhile.
        """
        async with db.transaction():
            row = await db.fetchrow(LOCK_KEPT_RESULT)
            if row is None:
                return False
            result = msgspec.convert(dict(row.items()), PaymentResult)
            if await self._is_applied(db, result):
                await db.execute(FORGET_KEPT_RESULT, row["id"])
            else:
                await db.execute(POSTPONE_KEPT_RESULT, row["id"], RETRY_WAIT)
        return True

    async def _is_applied(self, db: Connection, result: PaymentResult) -> bool:
        try:
            async with db.transaction():
                await self.results.apply(db, [result])
        except asyncpg.PostgresError as refused:
            if _is_lost(refused):
                raise
            self.log.error("payment_results.kept", item_count=1, reason=type(refused).__name__)
            return False
        return True
