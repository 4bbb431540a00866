"""Phase B, built in: execute the payments of a claimed batch in one transaction, or a few.

The guard, the instructions, the follow-ups and the new status are committed together. A crash
before the commit leaves payments that are still scheduled; after it, a repeat finds that they are
not, and does nothing. So an attempt with an unknown ending may be repeated.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias
from uuid import UUID

import msgspec
from msgspec import Struct

from penstock.base.uuid_v7 import uuids_v7
from penstock.domains.payments.lanes import ATTEMPTS_MAX
from penstock.domains.payments.loader import (
    LoadedPayment,
    PaymentContext,
    read_context,
)
from penstock.domains.payments.notify import NOBODY, TRY_AGAIN, Notification, NotifyStep
from penstock.domains.payments.payment import Notify
from penstock.kernel.item import DONE, Dead, Item, Outcome, Retry, Snooze
from penstock.kernel.settle import to_text
from penstock.postgres.pool import Connection, Pool, Row
from penstock.postgres.statement import statement

LIMIT_LOCK_WAITS = statement(__package__, "limit_lock_waits.sql")
LOCK_PAYMENTS = statement(__package__, "lock_payments.sql")
CORRECT_EXECUTED = statement(__package__, "correct_executed.sql")
MOVE_EXECUTED = statement(__package__, "move_executed.sql")
REJECT_PAYMENTS = statement(__package__, "reject_payments.sql")

TRANSACTION_MAX = 5_000  # As many instructions as the outbox takes at once; a lane may claim more.

# A lock that is not had in this time is no fault of these payments: without a limit, the handler's
# timeout would come first, and count as a failure of each.
LOCK_WAIT_MAX = "10s"
RETRY_AFTER = timedelta(seconds=5)

SCHEDULED = "SCHEDULED"
NO_PAYMENT = Dead(
    "there is no payment with this id: the built-in engine executes payments alone, and an item "
    "type of your own needs an engine on Temporal, in penstock.payment_item_type"
)
OTHER_ITEM = Dead("the payment belongs to another item")


class Execution(Struct, frozen=True, kw_only=True):
    """A payment that is being executed: it is locked, and nobody else has executed it.

    `created_by` is who scheduled it, such as `key:` and the id of a key. `outbox_id` is for its
    instruction, unless the outbox knows the instruction already.
    """

    payment: LoadedPayment
    context: PaymentContext
    created_by: str
    outbox_id: UUID


class Executed(Struct, frozen=True):
    """The payment is with the outbox, in this transaction; None: it has no instruction there."""

    outbox_id: UUID | None = None


class Refused(Struct, frozen=True):
    """The payment can never be executed."""

    reason: str


# Executes payments in the transaction of the connection, with one answer for each. It must not call
# anything outside the database: a rollback could not take that back.
Execute: TypeAlias = Callable[
    [Connection, Sequence[Execution]], Awaitable[Sequence[Executed | Refused]]
]
# What else belongs to executed payments, such as rows of your own, in the same transaction.
PostProcess: TypeAlias = Callable[[Connection, Sequence[Execution]], Awaitable[None]]


async def post_process_nothing(_db: Connection, _executions: Sequence[Execution]) -> None:
    """Leave executed payments as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltInEngine:
    """Executes payments in the worker. The three functions are its steps, each replaceable."""

    pool: Pool
    execute: Execute
    notify: NotifyStep
    post_process: PostProcess = post_process_nothing
    transaction_max: int = TRANSACTION_MAX

    async def handle_many(self, items: list[Item[LoadedPayment]]) -> list[Outcome | Exception]:
        """Execute payments together, up to `transaction_max` in one transaction.

        What ends a transaction and no payment has caused, such as a lock that cannot be had, is
        tried again however often it takes.
        """
        outcomes: list[Outcome | Exception] = []
        for first in range(0, len(items), self.transaction_max):
            part = items[first : first + self.transaction_max]
            try:
                outcomes += await self._run_part(part)
            except TRY_AGAIN as passing:
                reason = f"{type(passing).__qualname__}: the transaction is tried again"
                outcomes += [Retry(reason, RETRY_AFTER, attempts_max=ATTEMPTS_MAX)] * len(part)
        return outcomes

    async def _run_part(
        self, items: Sequence[Item[LoadedPayment]]
    ) -> Sequence[Outcome | Exception]:
        """Execute payments together; if one of them fails, each for itself."""
        try:
            return await self._run(items)
        except TRY_AGAIN:
            raise  # No payment is the cause.
        except Exception:  # noqa: BLE001  A replaced step or a trigger may raise anything.
            return [await self._run_alone(item) for item in items]

    async def _run_alone(self, item: Item[LoadedPayment]) -> Outcome | Exception:
        try:
            (outcome,) = await self._run([item])
        except TRY_AGAIN:
            raise
        except Exception as failure:  # noqa: BLE001  It costs this payment an attempt, and no other.
            return failure
        return outcome

    async def _run(self, items: Sequence[Item[LoadedPayment]]) -> list[Outcome]:
        async with self.pool.acquire() as db, db.transaction():
            await db.execute(LIMIT_LOCK_WAITS, LOCK_WAIT_MAX)
            outcomes = await self._execute(db, {each.payload.payment_id: each for each in items})
        return [outcomes.get(each.payload.payment_id, NO_PAYMENT) for each in items]

    async def _execute(
        self, db: Connection, items: Mapping[str, Item[LoadedPayment]]
    ) -> dict[str, Outcome]:
        """Execute the payments that are still to be; return how the attempt of each ended."""
        rows = await db.fetch(LOCK_PAYMENTS, list(items))
        outcomes: dict[str, Outcome] = {}
        wanted: list[tuple[LoadedPayment, str]] = []
        for row in rows:
            item = items[row["payment_id"]]
            outcome = _ended_before(item, row)
            if outcome is None:
                wanted.append((item.payload, row["created_by"]))
            else:
                outcomes[item.payload.payment_id] = outcome
        executions, refused = _read_contexts(wanted)
        await self._reject(db, refused)
        if executions:
            refused |= await self._move_and_execute(db, executions)
        outcomes |= dict.fromkeys((each.payment.payment_id for each in executions), DONE)
        outcomes |= {payment_id: Dead(reason) for payment_id, reason in refused.items()}
        await self.notify(db, notifications_of(executions, refused))
        return outcomes

    async def _move_and_execute(
        self, db: Connection, executions: Sequence[Execution]
    ) -> dict[str, str]:
        """Move payments, execute them, and return why some were refused.

        They are moved first, as if all were accepted: the execution locks the numbers of
        participants until the commit, and the next batch waits for them.
        """
        await db.execute(
            MOVE_EXECUTED,
            [each.payment.payment_id for each in executions],
            [each.outbox_id for each in executions],
        )
        answers = await self.execute(db, executions)
        refused: dict[str, str] = {}
        otherwise: dict[str, UUID | None] = {}
        for execution, answer in zip(executions, answers, strict=True):
            payment_id = execution.payment.payment_id
            if isinstance(answer, Refused):
                refused[payment_id], otherwise[payment_id] = to_text(answer.reason), None
            elif answer.outbox_id != execution.outbox_id:
                otherwise[payment_id] = answer.outbox_id
        await self._reject(db, refused)
        if otherwise:
            await db.execute(CORRECT_EXECUTED, list(otherwise), list(otherwise.values()))
        executed = [each for each in executions if each.payment.payment_id not in refused]
        if executed:
            await self.post_process(db, executed)
        return refused

    async def _reject(self, db: Connection, refused: Mapping[str, str]) -> None:
        if refused:
            await db.execute(REJECT_PAYMENTS, list(refused), list(refused.values()))


def _ended_before(item: Item[LoadedPayment], row: Row) -> Outcome | None:
    """Return the outcome of an attempt that must not execute the payment; None if it must.

    The payment is locked: nobody cancels or reschedules it any more. A worker that was suspended
    for longer than its lease may come after that.
    """
    if row["status"] == "REJECTED" and not row["is_executed"]:
        return Dead(row["reason"] or "rejected")
    if row["status"] != SCHEDULED:
        return DONE
    if row["item_id"] != item.id:
        return OTHER_ITEM
    if row["scheduled_at"] > item.due_at and row["due_in"] > 0:
        return Snooze(timedelta(seconds=row["due_in"]), "it was rescheduled after the claim")
    return None


def _read_contexts(
    wanted: Sequence[tuple[LoadedPayment, str]],
) -> tuple[list[Execution], dict[str, str]]:
    """Return the payments with their contexts, and why the others cannot be executed.

    Each payment comes with who has scheduled it.
    """
    executions: list[Execution] = []
    refused: dict[str, str] = {}
    for (payment, created_by), outbox_id in zip(wanted, uuids_v7(len(wanted)), strict=True):
        try:
            context = read_context(payment)
        except msgspec.DecodeError as malformed:
            refused[payment.payment_id] = to_text(f"context: {malformed}")
        else:
            executions.append(
                Execution(
                    payment=payment, context=context, created_by=created_by, outbox_id=outbox_id
                )
            )
    return executions, refused


def notifications_of(
    executions: Sequence[Execution], refused: Mapping[str, str]
) -> list[tuple[Notify, Notification]]:
    """Return what is to be said about payments, and to whom."""
    return [
        (
            each.context.notify,
            Notification(
                payment_id=each.payment.payment_id,
                status="REJECTED" if each.payment.payment_id in refused else "PROCESSING",
                amount=each.context.amount,
                currency=each.context.currency,
                reason=refused.get(each.payment.payment_id),
            ),
        )
        for each in executions
        if each.context.notify != NOBODY
    ]
