"""The steps of an execution on Temporal: the same functions that the built-in engine calls.

Each step is one transaction that locks the payment and acts only if its status says so: Temporal
may run an activity twice. It executes the stored context; the argument of the workflow has to be
the same, because a person may start one with another amount, which no rule has seen.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import msgspec
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from penstock.base.log import Logger
from penstock.base.uuid_v7 import uuids_v7
from penstock.domains.payments.execute import (
    REJECT_PAYMENTS,
    SCHEDULED,
    Execute,
    Executed,
    Execution,
    PostProcess,
    notifications_of,
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
from penstock.postgres.pool import Connection, Pool, Row
from penstock.postgres.statement import statement

ACCEPT_EXECUTED = statement(__package__, "accept_executed.sql")
LOCK_PAYMENT = statement(__package__, "lock_payment.sql")
MOVE_NOTIFIED = statement(__package__, "move_notified.sql")
NOTE_FAILURE = statement(__package__, "note_failure.sql")

NOT_DUE_WAIT_MAX = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecActivities:
    """The activities of the PaymentExecWorkflow; each returns the status of the payment.

    They fail permanently if there is no such payment, or if `context_json` is not the context that
    is stored for it.
    """

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
        async with self._locked(payment_id) as (db, row):
            if row["is_executed"]:
                # The result of an earlier run of this activity may have been lost.
                return ACCEPTED
            if row["status"] != SCHEDULED:
                return self._leave(payment_id, row)
            if row["due_in"] > 0:
                raise _not_due(row["due_in"])
            payment = _to_payment(row, context_json)
            try:
                execution = _to_execution(payment, row)
            except msgspec.DecodeError as malformed:
                return await self._reject(db, payment_id, f"context: {malformed}")
            return await self._execute(db, execution)

    @activity.defn(name=POST_PROCESS)
    async def post_process_payment(self, payment_id: str, context_json: str) -> str:
        """Do what else belongs to an executed payment, however far it is. May be repeated.

        The rail may be faster, and have settled or refused it by now.
        """
        async with self._locked(payment_id) as (db, row):
            if not row["is_executed"]:
                return self._leave(payment_id, row)
            await self.post_process(db, [_to_execution(_to_payment(row, context_json), row)])
        return ACCEPTED

    @activity.defn(name=NOTIFY)
    async def send_notifications(self, payment_id: str, context_json: str) -> str:
        """Send the requested notifications, in the transaction of ACCEPTED → PROCESSING."""
        async with self._locked(payment_id) as (db, row):
            if row["status"] != ACCEPTED:
                return self._leave(payment_id, row)
            execution = _to_execution(_to_payment(row, context_json), row)
            await self.notify(db, notifications_of([execution], {}))
            await db.execute(MOVE_NOTIFIED, [payment_id])
        return "PROCESSING"

    @activity.defn(name=REPORT_FAILURE)
    async def report_failure(self, payment_id: str, reason: str) -> str:
        """Note at the payment that its execution on Temporal has failed; its status stays."""
        self.log.error("execution.failed", payment_id=payment_id)
        async with self.pool.acquire() as db:
            await db.execute(NOTE_FAILURE, payment_id, to_text(f"execution failed: {reason}"))
        return "FAILED"

    @asynccontextmanager
    async def _locked(self, payment_id: str) -> AsyncGenerator[tuple[Connection, Row]]:
        """Run the body in a transaction that has locked the payment."""
        async with self.pool.acquire() as db, db.transaction():
            row = await db.fetchrow(LOCK_PAYMENT, payment_id)
            if row is None:
                self.log.warning("payment.not_moved", payment_id=payment_id, status=None)
                raise ApplicationError(
                    "there is no payment with this id", type="UnknownPayment", non_retryable=True
                )
            yield db, row

    def _leave(self, payment_id: str, row: Row) -> str:
        """Return the status of a payment that another transaction has moved.

        A rail is often faster than the last step. Otherwise another workflow or a person was first.
        """
        status: str = row["status"]
        if not row["is_executed"]:
            self.log.warning("payment.not_moved", payment_id=payment_id, status=status)
        return status

    async def _execute(self, db: Connection, execution: Execution) -> str:
        payment_id = execution.payment.payment_id
        (answer,) = await self.execute(db, [execution])
        if isinstance(answer, Executed):
            await db.execute(ACCEPT_EXECUTED, [payment_id], [answer.outbox_id])
            return ACCEPTED
        status = await self._reject(db, payment_id, answer.reason)
        await self.notify(db, notifications_of([execution], {payment_id: answer.reason}))
        return status

    async def _reject(self, db: Connection, payment_id: str, reason: str) -> str:
        await db.execute(REJECT_PAYMENTS, [payment_id], [to_text(reason)])
        return "REJECTED"


def _not_due(due_in: float) -> ApplicationError:
    """Return the failure after which Temporal runs the activity again when the payment is due.

    A payment may be rescheduled after a start that Temporal has stored but not answered. It is
    looked at once a minute, because it may be rescheduled again.
    """
    wait = min(timedelta(seconds=due_in), NOT_DUE_WAIT_MAX)
    return ApplicationError(
        "the payment is not due yet",
        type="NotDue",
        next_retry_delay=wait,
        category=ApplicationErrorCategory.BENIGN,  # Nothing that a worker's log has to show.
    )


def _to_payment(row: Row, given_json: str) -> LoadedPayment:
    """Return the payment as it is stored; raises ApplicationError if another context was given."""
    stored_json: str | None = row["context_json"]
    if stored_json is None or not _is_same(stored_json, given_json):
        raise ApplicationError(
            "the context is not the one that is stored for the payment",
            type="ContextDiffers",
            non_retryable=True,
        )
    return LoadedPayment(
        payment_id=row["payment_id"],
        item_type=row["item_type"],
        engine=row["engine"],
        context_json=stored_json,
        context_version=row["context_version"],
    )


def _is_same(stored_json: str, given_json: str) -> bool:
    """Compare by value: spaces and the order of keys mean nothing."""
    try:
        return msgspec.json.decode(given_json) == msgspec.json.decode(stored_json)
    except msgspec.DecodeError:
        return False


def _to_execution(payment: LoadedPayment, row: Row) -> Execution:
    """Return the payment with its context; raises msgspec.DecodeError if that is not one."""
    (outbox_id,) = uuids_v7(1)
    return Execution(
        payment=payment,
        context=read_context(payment),
        created_by=row["created_by"],
        outbox_id=outbox_id,
    )
