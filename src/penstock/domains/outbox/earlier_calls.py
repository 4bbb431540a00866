"""What earlier calls of an instruction allow: paid, refused, may be sent, or nobody knows. Pure.

The handler asks before it sends again, and the reconciler before it decides about a held
instruction, so that both follow the same rules.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias, assert_never

import msgspec

from penstock.domains.outbox.ending import RailEnding
from penstock.domains.outbox.instruction import Instruction
from penstock.domains.outbox.rails.rail import (
    LoadedRail,
    NoAnswer,
    NotFound,
    QueryResult,
    RailAnswer,
)

# Why an instruction may be sent. All but SAME_KEY prove that no earlier call has paid.
Clearance = Literal["NO_DOUBT", "NOT_CALLED", "NOT_FOUND", "REFUSED", "SAME_KEY"]

# Answers after which neither a repeat nor a query decides, as a query may not return the amount,
# and a rail may refuse a repeat before it looks at the key. The statement that loads them has the
# same.
PersonCode = Literal["AMOUNT_MISMATCH", "REFUSED_IN_DOUBT"]
LEFT_REASONS: dict[PersonCode, str] = {
    "AMOUNT_MISMATCH": "the rail reports another amount or currency",
    "REFUSED_IN_DOUBT": "the rail refused a repeat, and the first call may have paid",
}

NO_RESULT = msgspec.Raw(b"null")


class LateResult(msgspec.Struct, frozen=True):
    """What a worker returned after its lease had expired: often it answers a doubt."""

    token: int
    outcome: str
    result: msgspec.Raw = NO_RESULT

    @property
    def ending(self) -> RailEnding | None:
        """The ending that the handler returned, if it can be read."""
        try:
            return msgspec.json.decode(self.result, type=RailEnding | None)
        except msgspec.DecodeError:
            return None

    @property
    def is_clear(self) -> bool:
        """Whether it says that this attempt has not paid. A snoozed attempt made no call."""
        return self.outcome == "snooze" or (
            self.outcome in {"retry", "dead"} and self.ending is not None
        )


class PaidRow(msgspec.Struct, frozen=True):
    """A row of the archive, or a report of the rail, that says that the instruction was paid.

    `is_final`: it was settled or returned.
    """

    rail_reference: str | None
    rail_code: str | None
    is_final: bool = False


class PastCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The earlier calls of an instruction that was tried before, or is reported as paid.

    `doubts` are the tokens of attempts that may have paid, without those that were cleared;
    `first_doubt_at` is when the first of them was claimed.
    `left_for`: the code of an answer after which only a person decides, until one has done so.
    `was_failed`: it ended as FAILED, and a person has released it. `call_count` counts the calls
    that the rail may have had; of `referenced_count` of them it is known that they were refused,
    and with which of `refused_references`.
    """

    first_called_at: datetime | None = None
    last_ended_at: datetime | None = None
    last_lost_at: datetime | None = None
    first_doubt_at: datetime | None = None
    doubts: Sequence[int] = ()
    late: Sequence[LateResult] = ()
    paid: PaidRow | None = None
    left_for: PersonCode | None = None
    was_failed: bool = False
    call_count: int = 0
    referenced_count: int = 0
    refused_references: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Paid:
    """The rail has the instruction; it must never be sent again."""

    rail_code: str | None
    rail_reference: str | None
    is_pending: bool = False
    awaits_settlement: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The rail has refused the instruction permanently."""

    rail_code: str | None
    rail_reference: str | None
    message: str | None


@dataclass(frozen=True, slots=True)
class MaySend:
    """The instruction may be sent; a call that relies on its key, if it starts by `key_until`.

    Code and reference are those of the refusal that clears the earlier call, if one does.
    """

    clearance: Clearance
    key_until: datetime | None = field(default=None, compare=False)
    rail_code: str | None = field(default=None, compare=False)
    rail_reference: str | None = field(default=None, compare=False)

    @property
    def is_repeat(self) -> bool:
        """Whether an earlier call may have paid, so that only its key prevents a second payment."""
        return self.clearance == "SAME_KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskAgain:
    """Not known yet. `at`: when the next answer can decide, if that is known.

    `may_be_paid` is false if no earlier call is in doubt, and the rail was asked as a precaution.
    """

    reason: str
    at: datetime | None = None
    may_be_paid: bool = True


@dataclass(frozen=True, slots=True)
class AskPerson:
    """The rail cannot answer: only a person can find out."""

    code: str
    reason: str


Finding: TypeAlias = Paid | Refused | MaySend | AskAgain | AskPerson

EARLIER_CALL = AskPerson("CANNOT_VERIFY", "what the rail says may be about an earlier call")
RAIL_CHANGED = AskPerson(
    "RAIL_CHANGED", "the rail was changed after the call, and what it promises now does not count"
)


def find_known(past: PastCalls, *, rail: LoadedRail) -> Paid | Refused | MaySend | AskPerson | None:
    """Return what is known without asking the rail; None if it has to be asked.

    A late result counts for the attempt that it belongs to: only if no other is in doubt, a refusal
    or an attempt that stopped before its call decides.
    """
    if past.paid is not None:
        return Paid(
            rail_code=past.paid.rail_code,
            rail_reference=past.paid.rail_reference,
            awaits_settlement=settles_later(rail) and not past.paid.is_final,
        )
    for each in past.late:
        if each.outcome == "done":
            return _paid_late(each.ending)
    if past.left_for is not None:
        return _ask_person(past.left_for)
    late = {each.token: each for each in past.late if each.is_clear}
    if not past.doubts or any(token not in late for token in past.doubts):
        return None
    endings = [late[token].ending for token in past.doubts]
    calls = [each for each in endings if each is not None and each.called]
    for call in calls:
        if call.state == "FAILED":
            return Refused(
                rail_code=call.rail_code,
                rail_reference=call.rail_reference,
                message=call.error_message,
            )
    if not calls:
        return MaySend("NOT_CALLED")
    return MaySend(
        "REFUSED", rail_code=calls[-1].rail_code, rail_reference=calls[-1].rail_reference
    )


def settles_later(rail: LoadedRail) -> bool:
    """Return whether the rail has to be asked later what became of a payment that it accepted."""
    return rail.rail.properties.is_asynchronous and rail.rail.properties.can_query


def find_from_answer(
    found: QueryResult,
    past: PastCalls,
    *,
    instruction: Instruction,
    rail: LoadedRail,
    now: datetime,
) -> Finding:
    """Return what the answer to a query decides."""
    match found:
        case RailAnswer():
            return _find_from_code(found, past, instruction=instruction, rail=rail, now=now)
        case NotFound():
            return _find_from_absence(past, rail=rail, now=now)
        case NoAnswer(reason):
            return AskAgain(
                reason=f"the query got no answer: {reason}", may_be_paid=bool(past.doubts)
            )
        case _:
            assert_never(found)


def find_without_query(past: PastCalls, *, rail: LoadedRail, now: datetime) -> Finding:
    """Return what can be decided about a rail that answers no queries."""
    if not past.doubts:
        return MaySend("NO_DOUBT")
    if not _has_promises(past, rail):
        return RAIL_CHANGED
    key_until = _key_until(past, rail)
    if key_until is not None and now < key_until:
        return MaySend("SAME_KEY", key_until)
    return AskPerson("CANNOT_VERIFY", "the rail answers no queries, and its key is not valid")


def differs(answer: RailAnswer, instruction: Instruction) -> bool:
    """Return whether the rail says that it moved another amount or currency."""
    other_amount = answer.amount is not None and answer.amount != instruction.amount
    other_currency = answer.currency is not None and answer.currency != instruction.currency
    return other_amount or other_currency


def _ask_person(code: PersonCode) -> AskPerson:
    return AskPerson(code, LEFT_REASONS[code])


def _paid_late(ending: RailEnding | None) -> Paid:
    if ending is None:
        return Paid(rail_code=None, rail_reference=None)
    return Paid(
        rail_code=ending.rail_code,
        rail_reference=ending.rail_reference,
        is_pending=ending.is_pending,
        awaits_settlement=ending.awaits_settlement,
    )


def _find_from_code(
    answer: RailAnswer,
    past: PastCalls,
    *,
    instruction: Instruction,
    rail: LoadedRail,
    now: datetime,
) -> Finding:
    if differs(answer, instruction):
        return _ask_person("AMOUNT_MISMATCH")
    meaning = rail.classify(answer.code)
    match meaning:
        case "terminal" | "retryable" if _may_be_earlier(answer, past, rail):
            if answer.reference is None:
                return EARLIER_CALL
            # A rail answers about the last call that it knows, if none was paid: as if it had not
            # found the one in doubt.
            return _find_from_absence(past, rail=rail, now=now)
        case "paid" | "pending":
            is_pending = meaning == "pending" or rail.rail.properties.is_asynchronous
            return Paid(
                rail_code=answer.code,
                rail_reference=answer.reference,
                is_pending=is_pending,
                awaits_settlement=is_pending,
            )
        case "terminal":
            # The same refusal does not end an instruction again that a person has released.
            if past.was_failed and not past.doubts:
                return _may_send_refused(answer)
            return Refused(
                rail_code=answer.code, rail_reference=answer.reference, message=answer.message
            )
        case "retryable":
            return _may_send_refused(answer)
        case "unknown":
            return AskAgain(reason=f"the query was answered with {answer.code}")
        case _:
            assert_never(meaning)


def _may_send_refused(answer: RailAnswer) -> MaySend:
    return MaySend("REFUSED", rail_code=answer.code, rail_reference=answer.reference)


def _may_be_earlier(answer: RailAnswer, past: PastCalls, rail: LoadedRail) -> bool:
    """Return whether a refusal may be that of an earlier call than the one in doubt."""
    if not past.doubts or not rail.rail.properties.ignores_keys:
        return False
    return may_be_of_earlier_call(
        answer.reference,
        call_count=past.call_count,
        referenced_count=past.referenced_count,
        refused_references=past.refused_references,
    )


def may_be_of_earlier_call(
    reference: str | None,
    *,
    call_count: int,
    referenced_count: int,
    refused_references: Sequence[str],
) -> bool:
    """Return whether a refusal or a return may be that of another call than the last one.

    On a rail that ignores keys, each call is a payment with a reference of its own. A reference
    shows which call is meant only if those of all earlier ones are known.
    """
    if call_count <= 1:
        return False
    has_unknown_references = referenced_count < call_count - 1
    return reference is None or reference in refused_references or has_unknown_references


def _find_from_absence(past: PastCalls, *, rail: LoadedRail, now: datetime) -> Finding:
    if not past.doubts:
        return MaySend("NO_DOUBT")
    if not _has_promises(past, rail):
        return RAIL_CHANGED
    final_after = rail.rail.properties.not_found_is_final_after
    final_at = None
    if final_after is not None:
        # A worker that lost its lease may have begun its call at the last moment.
        ends = [past.last_ended_at, past.last_lost_at and past.last_lost_at + rail.timeout]
        final_at = max(each for each in ends if each is not None) + final_after
        if now >= final_at:
            return MaySend("NOT_FOUND")
    key_until = _key_until(past, rail)
    if key_until is not None and now < key_until:
        return MaySend("SAME_KEY", key_until)
    if final_at is not None:
        return AskAgain(reason="the rail does not know it yet", at=final_at)
    return AskPerson("CANNOT_VERIFY", "the rail does not know it, which proves nothing there")


def _has_promises(past: PastCalls, rail: LoadedRail) -> bool:
    """Return whether the calls in doubt were made under the row that the rail has now.

    Under another row they may have had no key, or have gone to another address, or have lasted
    longer: neither a key nor an absence proves anything then.
    """
    since = rail.promises_since
    return since is None or (past.first_doubt_at is not None and past.first_doubt_at >= since)


def _key_until(past: PastCalls, rail: LoadedRail) -> datetime | None:
    """Return until when a call may start so that the rail recognises its key when it arrives."""
    valid_for = rail.rail.properties.key_valid_for
    if valid_for is None or past.first_called_at is None:
        return None
    return past.first_called_at + valid_for - rail.timeout
