"""What a rail reports after the call, days later too: paid, settled, returned or refused.

A report is kept first and then applied: it may come before the answer to the call that it is about.
"""

import hmac
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from penstock.base.errors import InvalidInput
from penstock.base.log import Logger
from penstock.base.unique_keys import check_unique_keys
from penstock.domains.outbox.audit.archive import Archive
from penstock.domains.outbox.earlier_calls import Paid, Refused
from penstock.domains.outbox.errors import BadSignature, ResultMismatch, UnknownInstruction
from penstock.domains.outbox.instruction import Instruction
from penstock.domains.outbox.lanes import OWNER
from penstock.domains.outbox.lookup import forget_lookup
from penstock.domains.outbox.rails.rail import CodeClass, RailAnswer, Rails
from penstock.domains.outbox.reconcile.resolve import Resolver
from penstock.kernel import operate
from penstock.kernel.errors import StateConflict
from penstock.kernel.inspect import read_item
from penstock.kernel.item import ItemId
from penstock.postgres.pool import Connection, Queries, Row
from penstock.postgres.statement import statement

STORE_RESULT = statement(__package__, "store_result.sql")
LOCK_RESULTS = statement(__package__, "lock_results.sql")
CLAIM_RESULTS = statement(__package__, "claim_results.sql")
MARK_APPLIED = statement(__package__, "mark_applied.sql")
FIND_REPORTED = statement(__package__, "find_reported.sql")

WHO = "penstock.results"
AFTER_FAILURE = "AFTER_FAILURE"  # The error_code of a payment that is reported after a failure,
AFTER_REFUSAL = "AFTER_REFUSAL"  # and of a settlement that is reported after a refusal.
REPORTED_REFUSED = "the rail reports it as refused, and no call of it is known to have ended"
TOLERANCE = timedelta(minutes=5)  # For slow ways and wrong clocks.
WAIT = timedelta(seconds=30)  # Until a report about an instruction in flight is tried again.
BATCH_MAX = 50
SIGNATURES_MAX = 4  # In one header: a rail that changes its secret sends two.

_SIGNATURE = re.compile(r"t=([0-9]{1,11})((?:,v1=[0-9a-f]{64})+)")

Status = Literal["paid", "settled", "returned", "refused"]
Outcome = Literal["applied", "recorded", "known"]

# Returns the secret that a rail signs its reports with; None if it has none.
SecretOf = Callable[[Queries, str], Awaitable[str | None]]

# What a code of a report means. The others decide nothing yet.
STATUSES: dict[CodeClass, Status] = {"paid": "settled", "terminal": "refused"}


class Report(Struct, frozen=True, kw_only=True):
    """What a rail sends. It names the instruction in one of three ways, and one of status and code.

    Unknown fields are ignored: the format is the rail's.
    """

    rail_type: str
    amount: Decimal
    currency: str
    outbox_id: UUID | None = None
    instruction_id: str | None = None
    idempotency_key: str | None = None
    reference: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    status: Status | None = None
    code: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    occurred_at: Annotated[datetime, Meta(tz=True)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What became of a report: `recorded` is applied later, `known` was applied before."""

    outbox_id: UUID
    status: Status | None
    outcome: Outcome


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
        found = await self._find(db, report)
        if (report.amount, report.currency) != (found["amount"], found["currency"]):
            raise ResultMismatch(
                found["outbox_id"],
                f"{found['amount']} {found['currency']}",
                f"{report.amount} {report.currency}",
            )
        status = await self._status(report)
        if status is None:
            return Taken(outbox_id=found["outbox_id"], status=None, outcome="known")
        return await self.note(
            db,
            found["outbox_id"],
            status,
            rail_code=report.code,
            rail_reference=report.reference,
            occurred_at=report.occurred_at or now,
            now=now,
        )

    async def note(
        self,
        db: Connection,
        outbox_id: UUID,
        status: Status,
        *,
        rail_code: str | None,
        rail_reference: str | None,
        occurred_at: datetime,
        now: datetime,
    ) -> Taken:
        """Keep a result and apply it if that is possible now."""
        async with db.transaction():
            is_new = await db.fetchval(
                STORE_RESULT, outbox_id, status, rail_code, rail_reference, occurred_at, now
            )
            is_applied = await self.apply(db, outbox_id, now=now)
        outcome = "known" if not is_new else "applied" if is_applied else "recorded"
        return Taken(outbox_id=outbox_id, status=status, outcome=outcome)

    async def note_answer(
        self, db: Connection, instruction: Instruction, answer: RailAnswer, *, now: datetime
    ) -> bool:
        """Keep what the answer to a query decides about a dispatched instruction, if anything."""
        rail = await self.rails.find(instruction.rail_type)
        status = None if rail is None else STATUSES.get(rail.classify(answer.code))
        if status is None:
            return False
        await self.note(
            db,
            instruction.outbox_id,
            status,
            rail_code=answer.code,
            rail_reference=answer.reference,
            occurred_at=now,
            now=now,
        )
        return True

    async def apply_waiting(self, db: Connection, *, now: datetime) -> int:
        """Apply reports that could not be applied when they came; return how many were tried."""
        rows = await db.fetch(CLAIM_RESULTS, BATCH_MAX, WAIT, now)
        for row in rows:
            async with db.transaction():
                await self.apply(db, row["outbox_id"], now=now)
        return len(rows)

    async def apply(self, db: Connection, outbox_id: UUID, *, now: datetime) -> bool:
        """Apply the results of an instruction, in the caller's transaction; False: not all yet."""
        rows = await db.fetch(LOCK_RESULTS, outbox_id)
        states = set[str](rows[0]["states"]) if rows else set[str]()
        are_applied = True
        for row in rows:
            if await self._apply_one(db, outbox_id, row, states=states, now=now):
                await db.execute(MARK_APPLIED, outbox_id, row["status"], now)
            else:
                are_applied = False
        return are_applied

    async def _apply_one(
        self, db: Connection, outbox_id: UUID, row: Row, *, states: set[str], now: datetime
    ) -> bool:
        """Apply one result; `states` are those in the archive, and grow with it."""
        if not states & {"DISPATCHED", "SETTLED"}:
            ended = await self._end(db, outbox_id, row, now=now)
            if ended is None:
                return False
            states.add(ended)
        if "DISPATCHED" not in states:
            return True
        if row["status"] == "refused" and "RETURNED" not in states:
            was_paid = "SETTLED" in states or await self._was_paid(row)
            if was_paid is None:
                return False
            if was_paid:
                # RETURNED would allow the instruction under another key, which pays it again.
                self.log.error(
                    "instruction.contradicted", outbox_id=str(outbox_id), status=row["status"]
                )
                await forget_lookup(db, row["item_id"])
                return True
        await self._settle(db, outbox_id, row, states=states)
        return True

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

    async def _end(
        self, db: Connection, outbox_id: UUID, row: Row, *, now: datetime
    ) -> Literal["DISPATCHED", "FAILED", "HELD"] | None:
        """End an instruction that is in doubt; None if the report has to wait."""
        status: Status = row["status"]
        item_id, code, reference = row["item_id"], row["rail_code"], row["rail_reference"]
        reason = f"the rail reports it as {status}"
        if status == "refused":
            refused = Refused(rail_code=code, rail_reference=reference, message=None)
            is_ended = await self.resolver.end_failed(
                db, item_id, refused, who=WHO, reason=reason, now=now
            )
        else:
            paid = Paid(rail_code=code, rail_reference=reference)
            is_ended = await self.resolver.end_paid(
                db, item_id, paid, who=WHO, reason=reason, now=now
            )
        if not is_ended:
            item = await read_item(db, ItemId(item_id))
            if item is not None and item.state != "dead":
                # The last check before a call sees the report, and the handler what was paid.
                return await self._hold_refused(db, row, now=now) if status == "refused" else None
            if status != "refused":
                await self._write_paid_after_failure(db, outbox_id, row, now=now)
        return "FAILED" if status == "refused" else "DISPATCHED"

    async def _hold_refused(
        self, db: Connection, row: Row, *, now: datetime
    ) -> Literal["HELD"] | None:
        """Hold a waiting instruction that was refused although nothing is known of a call.

        None if it is in flight, or behind the head of its participant.
        """
        try:
            await operate.hold(
                db, ItemId(row["item_id"]), who=WHO, reason=REPORTED_REFUSED, owner=OWNER, now=now
            )
        except StateConflict:
            return None
        return "HELD"

    async def _settle(self, db: Connection, outbox_id: UUID, row: Row, *, states: set[str]) -> None:
        """Archive that a dispatched instruction was settled or returned, each once.

        A settlement after a refusal contradicts it: as RETURNED the instruction could be sent under
        another key, which would pay it twice.
        """
        if row["status"] == "paid":
            return
        state = "SETTLED" if row["status"] == "settled" else "RETURNED"
        is_contradicted = state == "SETTLED" and row["is_only_refused"] and "RETURNED" in states
        if is_contradicted:
            self.log.error(
                "instruction.contradicted", outbox_id=str(outbox_id), status=row["status"]
            )
        if state not in states and (is_contradicted or "RETURNED" not in states):
            await self._archive.write(
                db,
                outbox_id,
                state,
                who=WHO,
                rail_code=row["rail_code"],
                rail_reference=row["rail_reference"],
                error_code=AFTER_REFUSAL if is_contradicted else None,
                at=row["occurred_at"],
            )
            states.add(state)
        await forget_lookup(db, row["item_id"])

    async def _write_paid_after_failure(
        self, db: Connection, outbox_id: UUID, row: Row, *, now: datetime
    ) -> None:
        """Archive that an instruction that ended as failed was paid: a person has to look at it."""
        self.log.error(
            "instruction.paid_after_failure", outbox_id=str(outbox_id), status=row["status"]
        )
        await self._archive.write(
            db,
            outbox_id,
            "DISPATCHED",
            who=WHO,
            rail_code=row["rail_code"],
            rail_reference=row["rail_reference"],
            error_code=AFTER_FAILURE,
            at=now,
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
            raise InvalidInput("idempotency_key", "comes with instruction_id, and only with it")
        if all(each is None for each in (*ids, report.reference)):
            raise InvalidInput(
                "outbox_id", "is missing, and so are the other ids and the reference"
            )
        rows = await db.fetch(FIND_REPORTED, *ids, report.reference, report.rail_type)
        if len(rows) > 1:
            raise InvalidInput("reference", "is that of several instructions; send the outbox_id")
        if not rows:
            raise UnknownInstruction(
                str(report.outbox_id or report.instruction_id or report.reference)
            )
        return rows[0]

    async def _status(self, report: Report) -> Status | None:
        if report.status is not None:
            return report.status
        if report.code is None:
            raise InvalidInput("status", "is missing, and so is code")
        rail = await self.rails.find(report.rail_type)
        return None if rail is None else STATUSES.get(rail.classify(report.code))


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
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as malformed:
        raise InvalidInput("body", str(malformed)) from malformed
    check_unique_keys(body)
    return report
