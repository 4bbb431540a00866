"""Batch concurrent `POST /payments` requests into one transaction."""

from collections.abc import Sequence

from penstock.base.coalesce import Coalescer
from penstock.contract.http import ACQUIRE_TIMEOUT
from penstock.domains.payments.payment import Draft, Scheduled, ScheduleResult
from penstock.domains.payments.schedule import Payments

BATCH_MAX = 1_000  # Payments in one transaction.


class PaymentBatcher:
    """Where payments come in over REST and from Kafka."""

    def __init__(self, payments: Payments) -> None:
        self.payments = payments
        self._queue: Coalescer[Draft, ScheduleResult] = Coalescer(
            self.accept_many, batch_max=BATCH_MAX
        )

    async def accept(self, draft: Draft) -> Scheduled:
        """Return once the payment is committed, or raise why it is refused."""
        answer = await self._queue.ask(draft)
        assert isinstance(answer, Scheduled), "a refusal is raised"
        return answer

    async def accept_many(self, drafts: Sequence[Draft]) -> Sequence[ScheduleResult]:
        """Schedule payments together, with one answer for each."""
        pool = self.payments.pool
        async with pool.acquire(timeout=ACQUIRE_TIMEOUT.total_seconds()) as db:
            return await self.payments.schedule_prepared(drafts, connection=db)
