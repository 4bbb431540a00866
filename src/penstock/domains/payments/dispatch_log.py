"""The audit log of dispatches: a row for each payment, and one for each batch that is complete.

Written in the transaction that settles the attempts, so a row is there if the attempt is. Attempts
that a dead worker left are not in it: the kernel's `attempt` has them as `lost`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.base.meter import Meter
from penstock.domains.payments.loader import LoadedPayment, PaymentRef
from penstock.domains.payments.metrics import START_FAILURES, STARTED
from penstock.kernel.item import SettledAttempt
from penstock.postgres.pool import Connection
from penstock.postgres.statement import statement

LOG_DISPATCHES = statement(__package__, "log_dispatches.sql")

# The queue status after an attempt, by the kernel's outcome. A snoozed one was no dispatch.
STATUS_AFTER = {"done": "DISPATCHED", "retry": "READY", "hold": "HELD", "dead": "DEAD"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchLog:
    """Writes the rows of one lane, and counts its dispatches."""

    lane: str
    meter: Meter

    async def record(self, db: Connection, token: int, attempts: Sequence[SettledAttempt]) -> None:
        """Log settled attempts of one lease, in the transaction that settles them."""
        logged = [
            (each, each.preloaded.payment_id)
            for each in attempts
            # A payment without a context is only a reference, and its attempt has failed.
            if isinstance(each.preloaded, LoadedPayment | PaymentRef)
            and each.outcome in STATUS_AFTER
        ]
        # Also without a dispatch among them: they may be the last ones of their batch.
        await db.execute(
            LOG_DISPATCHES,
            token,
            self.lane,
            [payment_id for _, payment_id in logged],
            [STATUS_AFTER[each.outcome] for each, _ in logged],
            [each.reason for each, _ in logged],
        )
        started = sum(each.outcome == "done" for each, _ in logged)
        self.meter.count(STARTED, started, lane=self.lane)
        self.meter.count(START_FAILURES, len(logged) - started, lane=self.lane)
