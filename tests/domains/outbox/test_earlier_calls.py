"""What earlier calls of an instruction allow, case by case: paid, refused, send, ask again, ask."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from penstock.domains.outbox.earlier_calls import (
    EARLIER_CALL,
    AskAgain,
    AskPerson,
    Finding,
    LateResult,
    MaySend,
    Paid,
    PaidRow,
    PastCalls,
    Refused,
    find_from_answer,
    find_known,
    find_without_query,
)
from penstock.domains.outbox.ending import EndState, RailEnding
from penstock.domains.outbox.instruction import Instruction
from penstock.domains.outbox.rails.rail import NoAnswer, NotFound, QueryResult, RailAnswer
from tests.domains.outbox.rails.rail_scene import instruction
from tests.domains.outbox.sending.ledger import loaded

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TIMEOUT = timedelta(seconds=30)
PAYMENT: Instruction = instruction()

IN_DOUBT = PastCalls(first_called_at=NOW - MINUTE, last_ended_at=NOW - MINUTE, doubts=(7,))
CLEAR = PastCalls(first_called_at=NOW - MINUTE, last_ended_at=NOW - MINUTE)


NOT_VERIFIED = AskPerson("CANNOT_VERIFY", "the rail does not know it, which proves nothing there")
REFUSED_BEFORE = msgspec.structs.replace(
    IN_DOUBT, call_count=2, referenced_count=1, refused_references=("r",)
)
# What became of the first call was found out, and not with which reference.
CALLED_BEFORE = msgspec.structs.replace(IN_DOUBT, call_count=2)


def late(
    outcome: str, state: EndState | None = None, *, token: int = 7, called: bool = True
) -> LateResult:
    """Return what a worker handed in after its lease; without a state it cannot be read."""
    if state is None:
        return LateResult(token=token, outcome=outcome)
    ending = RailEnding(state=state, called=called, rail_code="C", rail_reference="r")
    return LateResult(token=token, outcome=outcome, result=msgspec.Raw(msgspec.json.encode(ending)))


def in_doubt(*found: LateResult, doubts: tuple[int, ...] = (7,)) -> PastCalls:
    return PastCalls(first_called_at=NOW, last_ended_at=NOW, doubts=doubts, late=found)


REFUSED_LATE = Refused(rail_code="C", rail_reference="r", message=None)
KNOWN: dict[str, tuple[PastCalls, Finding | None]] = {
    "nothing is known": (IN_DOUBT, None),
    "no doubt and nothing late": (CLEAR, None),
    "a row says paid": (
        PastCalls(doubts=(7,), paid=PaidRow("r", "C")),
        Paid(rail_code="C", rail_reference="r"),
    ),
    "late and paid": (
        in_doubt(late("done", "DISPATCHED")),
        Paid(rail_code="C", rail_reference="r"),
    ),
    "late and paid, unreadable": (
        in_doubt(late("done")),
        Paid(rail_code=None, rail_reference=None),
    ),
    "late and paid, of another attempt": (
        in_doubt(late("done", "DISPATCHED", token=3)),
        Paid(rail_code="C", rail_reference="r"),
    ),
    "late and refused": (in_doubt(late("dead", "FAILED")), REFUSED_LATE),
    "late and refused for now": (in_doubt(late("retry", "RETRYABLE")), MaySend("REFUSED")),
    "late without a call": (
        in_doubt(late("retry", "RETRYABLE", called=False)),
        MaySend("NOT_CALLED"),
    ),
    "late and snoozed": (in_doubt(late("snooze")), MaySend("NOT_CALLED")),
    "late, refused, unreadable": (in_doubt(late("dead")), None),
    "late and unknown again": (in_doubt(late("hold", "UNKNOWN")), None),
    "late of one of two in doubt": (in_doubt(late("dead", "FAILED"), doubts=(7, 8)), None),
    "another amount was reported": (
        msgspec.structs.replace(in_doubt(late("dead", "FAILED")), left_for="AMOUNT_MISMATCH"),
        AskPerson("AMOUNT_MISMATCH", "the rail reports another amount or currency"),
    ),
    "late of both in doubt": (
        in_doubt(late("snooze"), late("retry", "RETRYABLE", token=8), doubts=(7, 8)),
        MaySend("REFUSED"),
    ),
    "late of an attempt that is not in doubt": (
        in_doubt(late("dead", "FAILED", token=3)),
        None,
    ),
}


@pytest.mark.parametrize("case", KNOWN)
def test_what_is_known_without_asking_the_rail(case: str) -> None:
    past, expected = KNOWN[case]

    assert find_known(past, rail=loaded(1)) == expected


@pytest.mark.parametrize(
    ("is_asynchronous", "is_final", "awaits"),
    [(True, False, True), (True, True, False), (False, False, False)],
    ids=["reported as paid", "reported as settled", "the rail pays at once"],
)
def test_what_a_rail_only_accepted_is_asked_about_later(
    *, is_asynchronous: bool, is_final: bool, awaits: bool
) -> None:
    """A rail that settles later may return it, and not report that."""
    paid = PaidRow(rail_reference="r", rail_code=None, is_final=is_final)
    past = msgspec.structs.replace(IN_DOUBT, paid=paid)

    found = find_known(past, rail=loaded(1, can_query=True, is_asynchronous=is_asynchronous))

    assert found == Paid(rail_code=None, rail_reference="r", awaits_settlement=awaits)


def ask(found: QueryResult, past: PastCalls, **properties: Any) -> Finding:
    rail = loaded(1, timeout=TIMEOUT, can_query=True, **properties)
    return find_from_answer(found, past, instruction=PAYMENT, rail=rail, now=NOW)


def coded(code: str, **more: Any) -> RailAnswer:
    return RailAnswer(code=code, reference="r", **more)


def test_a_rail_that_recognises_keys_has_one_call_under_a_key() -> None:
    """Its refusal is that of the call in doubt, also if an earlier one had the same reference."""
    found = ask(coded("BUSY"), REFUSED_BEFORE, key_valid_for=timedelta(days=1))

    assert found == MaySend("REFUSED")


ANSWERED: dict[str, tuple[QueryResult, PastCalls, Finding]] = {
    "paid": (coded("PAID"), IN_DOUBT, Paid(rail_code="PAID", rail_reference="r")),
    "paid, nothing in doubt": (coded("PAID"), CLEAR, Paid(rail_code="PAID", rail_reference="r")),
    "pending": (
        coded("ACCEPTED"),
        IN_DOUBT,
        Paid(rail_code="ACCEPTED", rail_reference="r", is_pending=True, awaits_settlement=True),
    ),
    "terminal": (
        coded("REJECTED", message="no"),
        IN_DOUBT,
        Refused(rail_code="REJECTED", rail_reference="r", message="no"),
    ),
    "terminal, released by a person": (
        coded("REJECTED"),
        msgspec.structs.replace(CLEAR, was_failed=True),
        MaySend("REFUSED"),
    ),
    "terminal, released by a person and in doubt again": (
        coded("REJECTED"),
        msgspec.structs.replace(IN_DOUBT, was_failed=True),
        Refused(rail_code="REJECTED", rail_reference="r", message=None),
    ),
    "terminal, as an earlier call": (coded("REJECTED"), REFUSED_BEFORE, NOT_VERIFIED),
    "retryable, as an earlier call": (coded("BUSY"), REFUSED_BEFORE, NOT_VERIFIED),
    "retryable, and may be an earlier call": (
        RailAnswer(code="BUSY"),
        REFUSED_BEFORE,
        EARLIER_CALL,
    ),
    "retryable, and another call": (
        RailAnswer(code="BUSY", reference="r-2"),
        REFUSED_BEFORE,
        MaySend("REFUSED"),
    ),
    "retryable, and may be an earlier call of which no reference is known": (
        coded("BUSY"),
        CALLED_BEFORE,
        NOT_VERIFIED,
    ),
    "terminal, and may be an earlier call of which no reference is known": (
        coded("REJECTED"),
        CALLED_BEFORE,
        NOT_VERIFIED,
    ),
    "paid, after an earlier call was refused": (
        coded("PAID"),
        REFUSED_BEFORE,
        Paid(rail_code="PAID", rail_reference="r"),
    ),
    "retryable": (coded("BUSY"), IN_DOUBT, MaySend("REFUSED")),
    "unknown": (
        coded("IN_PROGRESS"),
        IN_DOUBT,
        AskAgain(reason="the query was answered with IN_PROGRESS"),
    ),
    "a code without a row": (
        coded("E-417"),
        IN_DOUBT,
        AskAgain(reason="the query was answered with E-417"),
    ),
    "another amount": (
        coded("PAID", amount=Decimal("12.51")),
        IN_DOUBT,
        AskPerson("AMOUNT_MISMATCH", "the rail reports another amount or currency"),
    ),
    "another currency": (
        coded("PAID", amount=Decimal("12.50"), currency="USD"),
        IN_DOUBT,
        AskPerson("AMOUNT_MISMATCH", "the rail reports another amount or currency"),
    ),
    "no answer": (
        NoAnswer("timeout"),
        IN_DOUBT,
        AskAgain(reason="the query got no answer: timeout"),
    ),
    "no answer, nothing in doubt": (
        NoAnswer("timeout"),
        CLEAR,
        AskAgain(reason="the query got no answer: timeout", may_be_paid=False),
    ),
    "not found, nothing in doubt": (NotFound(), CLEAR, MaySend("NO_DOUBT")),
    "not found, which proves nothing": (
        NotFound(),
        IN_DOUBT,
        AskPerson("CANNOT_VERIFY", "the rail does not know it, which proves nothing there"),
    ),
}


@pytest.mark.parametrize("case", ANSWERED)
def test_what_the_answer_of_a_rail_decides(case: str) -> None:
    found, past, expected = ANSWERED[case]

    assert ask(found, past) == expected


def test_a_rail_that_settles_later_is_asked_about_what_it_has_paid() -> None:
    found = ask(coded("PAID"), IN_DOUBT, is_asynchronous=True)

    assert found == Paid(
        rail_code="PAID", rail_reference="r", is_pending=True, awaits_settlement=True
    )


@pytest.mark.parametrize(
    ("final_after", "lost_for", "expected"),
    [
        (MINUTE, None, MaySend("NOT_FOUND")),
        (MINUTE + timedelta(microseconds=1), None, "wait"),
        # A worker that lost its lease a minute ago may have begun a call of 30 s just then.
        (MINUTE, MINUTE, "wait"),
        (MINUTE - TIMEOUT, MINUTE, MaySend("NOT_FOUND")),
    ],
    ids=["final now", "a moment before", "lost, the call may last", "lost, the call is over"],
)
def test_not_found_counts_from_the_last_moment_of_a_call(
    final_after: timedelta, lost_for: timedelta | None, expected: object
) -> None:
    lost_at = None if lost_for is None else NOW - lost_for
    past = msgspec.structs.replace(IN_DOUBT, last_lost_at=lost_at)

    found = ask(NotFound(), past, not_found_is_final_after=final_after)

    if expected == "wait":
        assert isinstance(found, AskAgain)
        assert found.at is not None
        assert found.at > NOW
    else:
        assert found == expected


KEYS: dict[str, tuple[PastCalls, timedelta | None, bool]] = {
    "valid until the call has ended": (IN_DOUBT, MINUTE + TIMEOUT + timedelta(seconds=1), True),
    "not until the call has ended": (IN_DOUBT, MINUTE + TIMEOUT, False),
    "keys are ignored": (IN_DOUBT, None, False),
    "nobody knows when it was called first": (PastCalls(doubts=(7,)), timedelta(days=1), False),
}


@pytest.mark.parametrize("case", KEYS)
def test_a_key_is_sent_again_only_while_the_rail_recognises_it(case: str) -> None:
    """Afterwards the same key is a second payment."""
    past, valid_for, is_sent = KEYS[case]
    rail = loaded(1, timeout=TIMEOUT, key_valid_for=valid_for)

    found = find_without_query(past, rail=rail, now=NOW)

    assert found == MaySend("SAME_KEY") if is_sent else isinstance(found, AskPerson)


def test_without_a_query_what_is_not_in_doubt_is_sent() -> None:
    assert find_without_query(CLEAR, rail=loaded(1), now=NOW) == MaySend("NO_DOUBT")
