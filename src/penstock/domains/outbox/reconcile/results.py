"""What a rail reports after the call, days later too: paid, settled, returned or refused.

A report is kept first and then applied: it may come before the answer to the call that it is about.
"""

import hmac
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from hashlib import sha256
from typing import Annotated, Literal, assert_never
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from penstock.base.aio import outcome_of
from penstock.base.errors import InvalidInput
from penstock.base.log import Logger, describe
from penstock.base.refused_field import name_field, to_reason
from penstock.base.unique_keys import check_unique_keys
from penstock.domains.outbox.audit.archive import Archive, ArchivedState
from penstock.domains.outbox.earlier_calls import (
    EARLIER_CALL,
    Paid,
    Refused,
    may_be_of_earlier_call,
    settles_later,
)
from penstock.domains.outbox.ending import UNKNOWN_PREFIX
from penstock.domains.outbox.errors import (
    BadSignature,
    RailNotLoaded,
    ResultMismatch,
    UnknownInstruction,
)
from penstock.domains.outbox.instruction import Instruction
from penstock.domains.outbox.lanes import OWNER
from penstock.domains.outbox.lookup import forget_lookup
from penstock.domains.outbox.rails.rail import CodeClass, RailAnswer, Rails
from penstock.domains.outbox.reconcile.decide_result import (
    FIRST_STEPS,
    Reported,
    ReportedClass,
    ReportedStatus,
    ReportStep,
    decide,
)
from penstock.domains.outbox.reconcile.resolve import Resolver
from penstock.kernel import operate
from penstock.kernel.audit import audit
from penstock.kernel.errors import StateConflict
from penstock.kernel.item import ItemId
from penstock.kernel.settle import to_text
from penstock.postgres.errors import DatabaseAway
from penstock.postgres.pool import Connection, Queries, Row, database_away
from penstock.postgres.statement import statement

LOCK_KEY = statement(__package__, "lock_key.sql")
STORE_RESULT = statement(__package__, "store_result.sql")
LOCK_RESULTS = statement(__package__, "lock_results.sql")
CLAIM_RESULTS = statement(__package__, "claim_results.sql")
MARK_APPLIED = statement(__package__, "mark_applied.sql")
FIND_REPORTED = statement(__package__, "find_reported.sql")
FORGET_RESULT = statement(__package__, "forget_result.sql")
IS_OF_REFUSED_CALL = statement(__package__, "is_of_refused_call.sql")
NOTE_LATE_PAYMENTS = statement(__package__, "note_late_payments.sql")
REJECT_OTHER_KEYS = statement(__package__, "reject_other_keys.sql")

WHO = "penstock.results"
AFTER_FAILURE = "AFTER_FAILURE"  # The error_code of a payment that is reported after a failure,
AFTER_REFUSAL = "AFTER_REFUSAL"  # and of a settlement that is reported after a refusal.
PAID_UNDER_OTHER_KEY = "the instruction was paid under another key"
REPORTED_REFUSED = "the rail reports it as refused, and no call of it is known to have ended"
TOLERANCE = timedelta(minutes=5)  # For slow ways and wrong clocks.
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
AHEAD_MAX = timedelta(days=1)  # Of what has happened: a rail may know only the day, in its zone.
WAIT = timedelta(seconds=30)  # Until a report about an instruction in flight is tried again.
BATCH_MAX = 50
# A worker's late result comes when its call or its suspension ends: mostly within seconds.
LATE_FOR = timedelta(days=7)
SIGNATURES_MAX = 4  # In one header: a rail that changes its secret sends two.

_SIGNATURE = re.compile(r"t=([0-9]{1,11})((?:,v1=[0-9a-f]{64})+)")

ReportOutcome = Literal["applied", "recorded", "known"]

# Returns the secret that a rail signs its reports with; None if it has none.
SecretOf = Callable[[Queries, str], Awaitable[str | None]]


@dataclass(frozen=True, slots=True)
class Said:
    """What a report says; `code_class` is that of its code, if it names no status."""

    status: ReportedStatus
    code_class: ReportedClass | None = None


# What a code of a report, or of the answer to a query, means. The others decide nothing yet.
STATUSES: dict[CodeClass, Said] = {
    "paid": Said("settled", "paid"),
    "terminal": Said("refused", "terminal"),
    "retryable": Said("refused", "retryable"),
}


class Report(Struct, frozen=True, kw_only=True):
    """What a rail sends. It names the instruction in one of three ways, and a status or a code.

    With both, the status decides, and the code is archived. The amount is a decimal string or an
    integer: a JSON float may be rounded. Unknown fields are ignored: the format is the rail's.
    """

    rail_type: str
    amount: str | int
    currency: str
    outbox_id: UUID | None = None
    instruction_id: str | None = None
    idempotency_key: str | None = None
    reference: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    status: ReportedStatus | None = None
    code: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    occurred_at: Annotated[datetime, Meta(tz=True)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What became of a report: `recorded` is applied later, `known` was applied before."""

    outbox_id: UUID
    status: ReportedStatus | None
    outcome: ReportOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Takes reports and applies them."""

    rails: Rails
    resolver: Resolver
    secret_of: SecretOf
    log: Logger

    @property
    def _archive(self) -> Archive:
        return self.resolver.archive

    async def take(
        self, db: Connection, body: bytes, signature: str | None, *, now: datetime
    ) -> Taken:
        """Take a signed report; a repeat changes nothing.

        Raises BadSignature, InvalidInput, UnknownInstruction, or ResultMismatch if the amount or
        the currency is not that of the instruction.
        """
        report = _read(body)
        await self._verify(db, report.rail_type, body, signature=signature, now=now)
        _check_instant(report.occurred_at, now=now)
        amount = _read_amount(report.amount)
        found = await self._find(db, report)
        if (amount, report.currency) != (found["amount"], found["currency"]):
            raise ResultMismatch(
                found["outbox_id"],
                f"{found['amount']} {found['currency']}",
                f"{amount} {report.currency}",
            )
        said = await self._said(report)
        if said is None:
            return Taken(outbox_id=found["outbox_id"], status=None, outcome="known")
        return await self.note(
            db,
            found["outbox_id"],
            said.status,
            rail_code=report.code,
            rail_reference=report.reference,
            occurred_at=report.occurred_at,
            code_class=said.code_class,
            now=now,
        )

    async def note(
        self,
        db: Connection,
        outbox_id: UUID,
        status: ReportedStatus,
        *,
        rail_code: str | None,
        rail_reference: str | None,
        occurred_at: datetime | None,
        code_class: ReportedClass | None = None,
        now: datetime,
    ) -> Taken:
        """Keep a result and apply it if that is possible now."""
        async with db.transaction():
            await db.fetch(LOCK_KEY, outbox_id)
            if status in {"refused", "returned"} and await db.fetchval(
                IS_OF_REFUSED_CALL, outbox_id, rail_reference
            ):
                # Kept, it would take the place of one about the later call.
                return Taken(outbox_id=outbox_id, status=status, outcome="known")
            is_new = await db.fetchval(
                STORE_RESULT,
                outbox_id,
                status,
                None if rail_code is None else to_text(rail_code),
                None if rail_reference is None else to_text(rail_reference),
                occurred_at,
                now,
                code_class,
            )
            is_applied = await self.apply(db, outbox_id, now=now)
        outcome = "known" if not is_new else "applied" if is_applied else "recorded"
        return Taken(outbox_id=outbox_id, status=status, outcome=outcome)

    async def note_answer(
        self, db: Connection, instruction: Instruction, answer: RailAnswer, *, now: datetime
    ) -> None:
        """Keep what the answer to a query decides about a dispatched instruction, if anything."""
        rail = await self.rails.find(instruction.rail_type)
        found = None if rail is None else STATUSES.get(rail.classify(answer.code))
        if found is None:
            return
        await self.note(
            db,
            instruction.outbox_id,
            found.status,
            rail_code=answer.code,
            rail_reference=answer.reference,
            occurred_at=None,
            code_class=found.code_class,
            now=now,
        )

    async def apply_waiting(self, db: Connection, *, now: datetime) -> int:
        """Apply reports that could not be applied when they came; return how many were tried.

        What a worker has paid and could not settle any more is applied like a report.
        """
        await db.execute(NOTE_LATE_PAYMENTS, now, LATE_FOR)
        rows = await db.fetch(CLAIM_RESULTS, BATCH_MAX, WAIT, now)
        for row in rows:
            outbox_id = row["outbox_id"]
            failure = await outcome_of(self._apply_locked(db, outbox_id, now=now))
            if isinstance(failure, DatabaseAway):
                raise failure
            if isinstance(failure, Exception):
                # One that cannot be applied must not keep the others back.
                self.log.error("result.failed", outbox_id=str(outbox_id), **describe(failure))
        return len(rows)

    async def _apply_locked(self, db: Connection, outbox_id: UUID, *, now: datetime) -> None:
        with database_away():
            async with db.transaction():
                await db.fetch(LOCK_KEY, outbox_id)
                await self.apply(db, outbox_id, now=now)

    async def apply(self, db: Connection, outbox_id: UUID, *, now: datetime) -> bool:
        """Apply the results of an instruction, in the caller's transaction; False: not all yet."""
        delayed: set[tuple[str, int]] = set()
        while True:
            # Read again after each step: it changes what the next one is compared with.
            rows = await db.fetch(LOCK_RESULTS, outbox_id)
            row = next(
                (row for row in rows if (row["status"], row["attempt"]) not in delayed), None
            )
            if row is None:
                return not delayed
            if row["is_of_refused_call"]:
                # It came while the later call was in flight. Marked as applied, it would take the
                # place of one about that call.
                await db.execute(FORGET_RESULT, outbox_id, row["status"], row["attempt"])
                continue
            reported = await self._reported(row)
            step = decide(reported)
            if step == "wait" or not await self._take_step(db, outbox_id, row, step=step, now=now):
                delayed.add((row["status"], row["attempt"]))
            elif reported.may_be_earlier and step in {"ask_person", "contradicted"}:
                # Kept, it would take the place of one about the last call.
                await db.execute(FORGET_RESULT, outbox_id, row["status"], row["attempt"])
            elif step not in FIRST_STEPS:
                await db.execute(MARK_APPLIED, outbox_id, row["status"], row["attempt"], now)

    async def _reported(self, row: Row) -> Reported:
        return Reported(
            status=row["status"],
            states=set(row["states"]),
            place=row["place"],
            was_paid=await self._was_paid(row) if row["status"] == "refused" else False,
            may_be_paid=row["may_be_paid"],
            may_be_earlier=await self._may_be_earlier(row),
            code_class=row["code_class"],
            call_count=row["call_count"],
            is_only_refused=row["is_only_refused"],
        )

    async def _may_be_earlier(self, row: Row) -> bool:
        """Return whether a refusal or a return may be that of an earlier call.

        The reference of a call that was accepted is known: any other one is that of another call.
        """
        reference = row["rail_reference"]
        if row["status"] not in {"refused", "returned"}:
            return False
        if reference is not None and reference in row["dispatched_references"]:
            return False
        if row["dispatched_codes"]:
            may_be_earlier = row["call_count"] > 1
        else:
            may_be_earlier = may_be_of_earlier_call(
                reference,
                call_count=row["call_count"],
                referenced_count=row["referenced_count"],
                refused_references=row["refused_references"],
            )
        return may_be_earlier and await self._ignores_keys(row["rail_type"])

    async def _ignores_keys(self, rail_type: str) -> bool:
        """Return whether a rail may have several calls under one key, as far as is known here."""
        rail = await self.rails.find(rail_type)
        return rail is None or rail.rail.properties.ignores_keys

    async def _was_paid(self, row: Row) -> bool | None:
        """Return whether a dispatched instruction was paid, and not only accepted by its rail.

        None if this process does not have the rail, so that it cannot classify the codes.
        """
        codes: list[str | None] = row["dispatched_codes"]
        if row["is_reported_paid"] or None in codes:
            return True  # Without a code, a person or a report has said so.
        rail = await self.rails.find(row["rail_type"])
        if rail is None:
            return None
        accepted = {"pending", "paid"} if rail.rail.properties.is_asynchronous else {"pending"}
        return any(rail.classify(code) not in accepted for code in codes if code is not None)

    async def _take_step(
        self, db: Connection, outbox_id: UUID, row: Row, *, step: ReportStep, now: datetime
    ) -> bool:
        """Apply what was decided about a result; False if it cannot be applied now."""
        item_id, code, reference = row["item_id"], row["rail_code"], row["rail_reference"]
        reason = f"the rail reports it as {row['status']}"
        about = {"outbox_id": str(outbox_id), "status": row["status"]}
        match step:
            case "nothing" | "wait":
                return True
            case "end_paid":
                rail = await self.rails.find(row["rail_type"])
                if rail is None:
                    return False  # Another process knows whether it is settled later.
                paid = Paid(
                    rail_code=code,
                    rail_reference=reference,
                    awaits_settlement=settles_later(rail),
                )
                return await self.resolver.end_paid(
                    db, item_id, paid, who=WHO, reason=reason, now=now
                )
            case "end_failed":
                refused = Refused(rail_code=code, rail_reference=reference, message=None)
                return await self.resolver.end_failed(
                    db, item_id, refused, who=WHO, reason=reason, now=now
                )
            case "ask_person":
                self.log.error("instruction.left_undecided", reason=EARLIER_CALL.reason, **about)
                return True
            case "hold" | "hold_in_doubt":
                return await self._hold_refused(db, row, is_in_doubt=step != "hold", now=now)
            case "paid_after_failure":
                self.log.error("instruction.failure_contradicted", **about)
                await self._write(
                    db, outbox_id, "DISPATCHED", row=row, error_code=AFTER_FAILURE, at=now
                )
                await self._reject_other_keys(db, outbox_id)
                return True
            case "settled":
                await self._write(db, outbox_id, "SETTLED", row=row)
            case "returned":
                await self._write(db, outbox_id, "RETURNED", row=row)
            case "settled_after_refusal":
                self.log.error("instruction.contradicted", **about)
                await self._write(db, outbox_id, "SETTLED", row=row, error_code=AFTER_REFUSAL)
                await self._reject_other_keys(db, outbox_id)
            case "contradicted":
                self.log.error("instruction.contradicted", **about)
                return True  # What becomes of it is still asked, if the rail settles later.
            case _:
                assert_never(step)
        await forget_lookup(db, item_id)
        return True

    async def _reject_other_keys(self, db: Connection, outbox_id: UUID) -> None:
        """Reject the same instruction under other keys: its producer saw that it had failed."""
        rows = await db.fetch(REJECT_OTHER_KEYS, outbox_id, WHO, PAID_UNDER_OTHER_KEY)
        for row in rows:
            rejected = str(row["outbox_id"])
            await audit(
                db, WHO, "outbox_instruction.rejected", subject=rejected,
                after={"reason": PAID_UNDER_OTHER_KEY},
            )  # fmt: skip
            self.log.error("instruction.rejected", outbox_id=rejected, reason=PAID_UNDER_OTHER_KEY)

    async def _hold_refused(
        self, db: Connection, row: Row, *, is_in_doubt: bool, now: datetime
    ) -> bool:
        """Hold a waiting instruction that was refused although no call of it has ended.

        False if it is held for another reason, or behind the head of its participant.
        """
        item_id = ItemId(row["item_id"])
        reason = UNKNOWN_PREFIX + REPORTED_REFUSED if is_in_doubt else REPORTED_REFUSED
        try:
            await operate.hold(db, item_id, who=WHO, reason=reason, owner=OWNER, now=now)
        except StateConflict:
            return False
        if is_in_doubt:
            # Its lookup was deferred when the instruction was released: the next question comes at
            # once.
            await forget_lookup(db, item_id)
        else:
            self.log.error("instruction.blocked", item_id=item_id, reason=reason)
        return True

    async def _write(
        self,
        db: Connection,
        outbox_id: UUID,
        state: ArchivedState,
        *,
        row: Row,
        error_code: str | None = None,
        at: datetime | None = None,
    ) -> None:
        await self._archive.write(
            db,
            outbox_id,
            state,
            who=WHO,
            rail_code=row["rail_code"],
            rail_reference=row["rail_reference"],
            error_code=error_code,
            at=at or row["occurred_at"],
        )

    async def _verify(
        self, db: Queries, rail_type: str, body: bytes, *, signature: str | None, now: datetime
    ) -> None:
        refused = verify(signature, body, await self.secret_of(db, rail_type), now=now)
        if refused is not None:
            self.log.warning("result.refused", name=rail_type[:100], reason=refused)
            raise BadSignature

    async def _find(self, db: Queries, report: Report) -> Row:
        ids = (report.outbox_id, report.instruction_id, report.idempotency_key)
        if (report.instruction_id is None) != (report.idempotency_key is None):
            raise InvalidInput("idempotency_key", "must be given together with instruction_id")
        if all(each is None for each in (*ids, report.reference)):
            raise InvalidInput("outbox_id", "is missing; give it, instruction_id or a reference")
        rows = await db.fetch(FIND_REPORTED, *ids, report.reference, report.rail_type)
        if len(rows) > 1:
            raise InvalidInput("reference", "is that of several instructions; send the outbox_id")
        if not rows:
            raise UnknownInstruction(
                str(report.outbox_id or report.instruction_id or report.reference)
            )
        return rows[0]

    async def _said(self, report: Report) -> Said | None:
        """Return what a report says; None if its code decides nothing yet.

        Raises RailNotLoaded: answered as known, the report would be lost.
        """
        if report.status is not None:
            return Said(report.status)
        if report.code is None:
            raise InvalidInput("status", "is missing, and so is code")
        rail = await self.rails.find(report.rail_type)
        if rail is None:
            raise RailNotLoaded(report.rail_type)
        return STATUSES.get(rail.classify(report.code))


def sign(secret: str, body: bytes, *, at: int) -> str:
    """Return the header Penstock-Signature of a report made `at` so many seconds after 1970."""
    return f"t={at},v1={hmac.new(secret.encode(), b'%d.' % at + body, sha256).hexdigest()}"


def verify(signature: str | None, body: bytes, secret: str | None, *, now: datetime) -> str | None:
    """Return None if the secret signed the body near `now`, and else why not."""
    found = _SIGNATURE.fullmatch(signature or "")
    if found is None:
        return "there is no valid header Penstock-Signature"
    at, signatures = int(found[1]), found[2].split(",v1=")[1:]
    if abs(now.timestamp() - at) > TOLERANCE.total_seconds():
        return "the timestamp is too far from now"
    if len(signatures) > SIGNATURES_MAX:
        return "there are too many signatures"
    if not secret:
        return "the rail has no secret"
    expected = sign(secret, body, at=at).partition(",v1=")[2]
    is_signed = any(hmac.compare_digest(expected, each) for each in signatures)
    return None if is_signed else "no signature is valid"


def _read(body: bytes) -> Report:
    try:
        report = msgspec.json.decode(body, type=Report)
    except msgspec.ValidationError as refused:
        raise name_field(refused) from refused
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as malformed:
        raise InvalidInput("body", to_reason(str(malformed))) from malformed
    check_unique_keys(body)
    for field in ("rail_type", "instruction_id", "idempotency_key", "reference"):
        if "\x00" in (getattr(report, field) or ""):
            raise InvalidInput(field, "holds a NUL character")
    return report


def _read_amount(given: str | int) -> Decimal:
    try:
        amount = Decimal(given)
    except InvalidOperation as malformed:
        raise InvalidInput("amount", "is not a decimal number") from malformed
    if not amount.is_finite():
        raise InvalidInput("amount", "is not a decimal number")
    return amount


def _check_instant(occurred_at: datetime | None, *, now: datetime) -> None:
    if occurred_at is not None and not EPOCH <= occurred_at <= now + AHEAD_MAX:
        raise InvalidInput("occurred_at", "must be between 1970 and tomorrow")
