"""What the outbox says about executed payments: settled, rejected, returned, or in doubt.

Applied in the outbox's own transaction, so a payment has the status that its instruction has. The
rail's report overrides an earlier rejection: a payment that is paid after all becomes settled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

import msgspec
from msgspec import Struct

from penstock.base.log import Logger
from penstock.domains.payments.notify import NOBODY, Notification, NotifyStep
from penstock.domains.payments.payment import Notify
from penstock.postgres.pool import Connection, Row
from penstock.postgres.statement import statement

HAS_PAYMENTS = statement(__package__, "has_payments.sql")
FIND_EXECUTED = statement(__package__, "find_executed.sql")
MOVE_BY_RESULT = statement(__package__, "move_by_result.sql")
NOTE_RAIL_REFERENCES = statement(__package__, "note_rail_references.sql")

ResultStatus = Literal["PROCESSING", "SETTLED", "REJECTED", "RETURNED", "UNKNOWN"]


class PaymentResult(Struct, frozen=True, kw_only=True):
    """What became of the instruction of a payment."""

    payment_id: str
    outbox_id: UUID
    status: ResultStatus
    rail_reference: str | None = None
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class PaymentResults:
    """Applies results, and sends the requested notifications.

    Every process with the outbox has one, also if it does not run payments: what becomes of a
    payment must not depend on which worker sent its instruction. So the tables may be missing.
    """

    notify: NotifyStep
    log: Logger
    _has_payments: bool = False

    async def has_payments(self, db: Connection) -> bool:
        """Return whether the database has the tables of payments."""
        self._has_payments = self._has_payments or await db.fetchval(HAS_PAYMENTS)
        return self._has_payments

    async def apply(self, db: Connection, results: Sequence[PaymentResult]) -> None:
        """Apply results in the transaction of the connection; a repeat changes nothing.

        Those of other instructions, which no payment has sent, are ignored.
        """
        rows = await db.fetch(
            FIND_EXECUTED,
            [each.payment_id for each in results],
            [each.outbox_id for each in results],
        )
        if not rows:
            return
        payments = {row["payment_id"]: row for row in rows}
        notifications: list[tuple[Notify, Notification]] = []
        statuses: dict[ResultStatus, None] = dict.fromkeys(each.status for each in results)
        for status in statuses:
            of_status = [
                each for each in results if each.status == status and each.payment_id in payments
            ]
            moved = await self._move(db, status, of_status)
            self._log_refused(payments, of_status, moved)
            notifications += [_notification(payments[each.payment_id], each) for each in moved]
        await self.notify(db, [each for each in notifications if each[0] != NOBODY])

    async def _move(
        self, db: Connection, status: ResultStatus, results: Sequence[PaymentResult]
    ) -> list[PaymentResult]:
        rows = await db.fetch(
            MOVE_BY_RESULT,
            [each.payment_id for each in results],
            status,
            [each.reason for each in results],
            [each.rail_reference for each in results],
        )
        moved = {row[0] for row in rows}
        if status == "PROCESSING":
            # The built-in engine has moved it before: only the reference is new.
            await self._note_references(
                db, [each for each in results if each.payment_id not in moved]
            )
        return [each for each in results if each.payment_id in moved]

    def _log_refused(
        self,
        payments: Mapping[str, Row],
        results: Sequence[PaymentResult],
        moved: Sequence[PaymentResult],
    ) -> None:
        """Warn of results that the state machine refuses; a repeated one is none of them."""
        has_moved = {each.payment_id for each in moved}
        for each in results:
            status = payments[each.payment_id]["status"]
            if each.payment_id not in has_moved and each.status not in {status, "PROCESSING"}:
                self.log.warning(
                    "payment.not_moved",
                    payment_id=each.payment_id,
                    status=status,
                    outcome=each.status,
                )

    async def _note_references(self, db: Connection, results: Sequence[PaymentResult]) -> None:
        given = {each.payment_id: each.rail_reference for each in results if each.rail_reference}
        if given:
            await db.execute(NOTE_RAIL_REFERENCES, list(given), list(given.values()))


_whom = msgspec.json.Decoder(Notify)


def _notification(row: Row, result: PaymentResult) -> tuple[Notify, Notification]:
    return _whom.decode(row["notify"]), Notification(
        payment_id=result.payment_id,
        status=result.status,
        amount=f"{row['amount']:f}",
        currency=row["currency"],
        reason=result.reason,
        rail_reference=result.rail_reference,
        moved_at=row["moved_at"],
    )
