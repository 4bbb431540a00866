"""The steps of an execution on Temporal: the same functions that the built-in engine calls.

Each step is one transaction that locks the payment and acts only if its status says so, because
Temporal may run an activity twice. A step that finds the payment further on changes nothing.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

import msgspec
from temporalio import activity
from temporalio.exceptions import ApplicationError

from penstock.base.log import Logger
from penstock.base.uuid_v7 import uuids_v7
from penstock.domains.payments.execute import (
    LOCK_PAYMENTS,
    REJECT_PAYMENTS,
    SCHEDULED,
    Execute,
    Executed,
    Execution,
    PostProcess,
    news_of,
    post_process_nothing,
)
from penstock.domains.payments.loader import LoadedPayment, read_context
from penstock.domains.payments.notify import NotifyStep
from penstock.domains.payments.temporal.models import (
    ACCEPTED,
    EXECUTE,
    NOTIFY,
    POST_PROCESS,
    REPORT_FAILURE,
)
from penstock.kernel.settle import to_text
from penstock.postgres.pool import Connection, Pool
from penstock.postgres.statement import statement

ACCEPT_EXECUTED = statement(__package__, "accept_executed.sql")
MOVE_NOTIFIED = statement(__package__, "move_notified.sql")
NOTE_FAILURE = statement(__package__, "note_failure.sql")

UNTOUCHED, UNTOLD = frozenset({SCHEDULED}), frozenset({ACCEPTED})
# Where a payment may be after its execution. The rail may be faster than the notifications.
EXECUTED = frozenset({ACCEPTED, "PROCESSING", "SETTLED", "RETURNED", "UNKNOWN"})

NOT_DUE_WAIT_MAX = timedelta(minutes=1)

ExecutionStep: TypeAlias = Callable[[Connection, Execution], Awaitable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecActivities:
    """The activities of the PaymentExecWorkflow; each returns the status of the payment."""

    pool: Pool
    log: Logger
    execute: Execute
    notify: NotifyStep
    post_process: PostProcess = post_process_nothing

    @activity.defn(name=EXECUTE)
    async def execute_payment(self, payment_id: str, context_json: str) -> str:
        """Execute the payment, unless it has been: SCHEDULED → ACCEPTED, or REJECTED.

        Fails, and is repeated by Temporal, while the payment is not due.
        """
        status = await self._run(payment_id, context_json, expected=UNTOUCHED, step=self._execute)
        # The result of an earlier run of this activity may have been lost.
        return ACCEPTED if status in EXECUTED else status

    @activity.defn(name=POST_PROCESS)
    async def post_process_payment(self, payment_id: str, context_json: str) -> str:
        """Do what else belongs to an executed payment, however far it is. May be repeated."""
        return await self._run(payment_id, context_json, expected=EXECUTED, step=self._post_process)

    @activity.defn(name=NOTIFY)
    async def send_notifications(self, payment_id: str, context_json: str) -> str:
        """Send the requested notifications, in the transaction of ACCEPTED → PROCESSING."""
        return await self._run(payment_id, context_json, expected=UNTOLD, step=self._notify)

    @activity.defn(name=REPORT_FAILURE)
    async def report_failure(self, payment_id: str, reason: str) -> str:
        """Note at the payment that its execution on Temporal has failed; its status stays."""
        self.log.error("execution.failed", payment_id=payment_id)
        async with self.pool.acquire() as db:
            await db.execute(NOTE_FAILURE, payment_id, to_text(f"execution failed: {reason}"))
        return "FAILED"

    async def _run(
        self, payment_id: str, context_json: str, *, expected: frozenset[str], step: ExecutionStep
    ) -> str:
        """Run a step if the payment, which is locked meanwhile, is in an expected status."""
        async with self.pool.acquire() as db, db.transaction():
            row = await db.fetchrow(LOCK_PAYMENTS, [payment_id])
            status = "UNKNOWN_PAYMENT" if row is None else row["status"]
            if row is None or status not in expected:
                # Another transaction was first: a run of this activity, the rail, or a person.
                self.log.warning("payment.not_moved", payment_id=payment_id, status=status)
                return status
            if status == SCHEDULED and row["due_in"] > 0:
                raise _not_due(row["due_in"])
            try:
                execution = _to_execution(payment_id, context_json, row["created_by"])
            except msgspec.DecodeError as malformed:
                return await self._reject(db, payment_id, f"context: {malformed}")
            return await step(db, execution)

    async def _execute(self, db: Connection, execution: Execution) -> str:
        payment_id = execution.payment.payment_id
        (answer,) = await self.execute(db, [execution])
        if isinstance(answer, Executed):
            await db.execute(ACCEPT_EXECUTED, [payment_id], [answer.outbox_id])
            return ACCEPTED
        status = await self._reject(db, payment_id, answer.reason)
        await self.notify(db, news_of([execution], {payment_id: answer.reason}))
        return status

    async def _reject(self, db: Connection, payment_id: str, reason: str) -> str:
        await db.execute(REJECT_PAYMENTS, [payment_id], [to_text(reason)])
        return "REJECTED"

    async def _post_process(self, db: Connection, execution: Execution) -> str:
        await self.post_process(db, [execution])
        return ACCEPTED

    async def _notify(self, db: Connection, execution: Execution) -> str:
        await self.notify(db, news_of([execution], {}))
        await db.execute(MOVE_NOTIFIED, [execution.payment.payment_id])
        return "PROCESSING"


def _not_due(due_in: float) -> ApplicationError:
    """Return the failure after which Temporal runs the activity again when the payment is due.

    A payment may be rescheduled after a start that Temporal has stored but not answered. It is
    looked at once a minute, because it may be rescheduled again.
    """
    wait = min(timedelta(seconds=due_in), NOT_DUE_WAIT_MAX)
    return ApplicationError("the payment is not due yet", type="NotDue", next_retry_delay=wait)


def _to_execution(payment_id: str, context_json: str, created_by: str) -> Execution:
    payment = LoadedPayment(
        payment_id=payment_id,
        item_type="PAYMENT",
        engine="temporal",
        context_json=context_json,
        context_version=0,
    )
    (outbox_id,) = uuids_v7(1)
    return Execution(
        payment=payment,
        context=read_context(payment),
        created_by=created_by,
        outbox_id=outbox_id,
    )
