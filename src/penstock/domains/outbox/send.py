"""One attempt of one instruction: validate, ask about earlier calls, check the lease, call.

No instruction is sent twice on a guess: one that was tried before is looked up first, and what is
unknown after a call is held. Snooze means that this attempt made no call.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Protocol, TypeVar, assert_never

from msgspec.structs import replace

from penstock.base.aio import outcome_of
from penstock.base.clock import Clock, boot_seconds, instant
from penstock.base.log import Logger, describe
from penstock.base.watchdog import Watchdog
from penstock.domains.outbox.check_call import CallChecker, CallPermit, IntendedCall
from penstock.domains.outbox.crash_point import CrashPoint, never_crash
from penstock.domains.outbox.earlier_calls import (
    LEFT_REASONS,
    AskAgain,
    AskPerson,
    Finding,
    MaySend,
    Paid,
    PastCalls,
    PersonCode,
    Refused,
    differs,
    find_from_answer,
    find_known,
    find_without_query,
)
from penstock.domains.outbox.ending import RailEnding, hold_unknown, make_ending
from penstock.domains.outbox.instruction import Instruction
from penstock.domains.outbox.loader import LoadedInstruction, OutboxRef
from penstock.domains.outbox.rails.concurrency import RailConcurrency
from penstock.domains.outbox.rails.rail import (
    NO_RAIL,
    LoadedRail,
    NoAnswer,
    NotFound,
    NotSent,
    QueryResult,
    RailAnswer,
    send_not_after,
)
from penstock.domains.outbox.verdict import Stop
from penstock.kernel.item import AnyItem, Dead, Done, Hold, Item, Outcome, Retry, Snooze
from penstock.kernel.settle import to_text
from penstock.postgres.errors import DatabaseAway

# A query and a call, a wait for a place, and the check; beyond it the item is held as unknown.
HANDLER_TIMEOUT = timedelta(seconds=120)
# An adapter ends its call within the timeout of its rail; one that does not is cancelled.
ADAPTER_GRACE = timedelta(seconds=1)
NO_RAIL_WAIT = timedelta(seconds=30)  # How soon to look whether there is a rail again.
STOPPED_WAIT = timedelta(seconds=5)  # How soon an instruction leaves after a switch is turned on.
FULL_WAIT = timedelta(seconds=1)  # At a full rail; on average, so that not all come back at once.
NO_ANSWER_WAIT = timedelta(seconds=10)  # How soon to ask a rail again that answers no query.
LOST_WAIT = timedelta(seconds=1)  # The lease is over: its present holder decides.
LEASE_OVER = Snooze(LOST_WAIT, "the lease was over before the call")

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# Returns why an instruction cannot be sent by a rail, or None: its amount, currency, destination.
Validate = Callable[[Instruction, LoadedRail], str | None]


class RailCall(Protocol[T_co]):
    """`send` or `query` of a rail."""

    async def __call__(self, instruction: Instruction, /, *, timeout: timedelta) -> T_co: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """The handler of the outbox lane."""

    checker: CallChecker
    validate: Validate
    clock: Clock
    log: Logger
    crash_point: CrashPoint = never_crash
    concurrency: RailConcurrency = field(default_factory=RailConcurrency)
    _watchdogs: dict[timedelta, Watchdog] = field(default_factory=dict[timedelta, Watchdog])

    async def __call__(self, item: Item[LoadedInstruction | OutboxRef]) -> Outcome:
        """Send the instruction if that is safe, and return the outcome."""
        loaded = item.payload
        if isinstance(loaded, OutboxRef):
            return _failed("GONE", "the instruction is gone")
        if loaded.rail is None:
            return _without_rail(loaded.instruction, loaded.past)
        invalid = self.validate(loaded.instruction, loaded.rail)
        if invalid is not None:
            return _failed("INVALID", invalid, loaded.past)
        if loaded.stop is not None:
            return _stopped(loaded.stop, loaded.past)
        if loaded.past is None:
            return await self._send_first(item, loaded.instruction, loaded.rail)
        return await self._send_again(item, loaded.instruction, loaded.rail, past=loaded.past)

    async def _send_first(
        self, item: AnyItem, instruction: Instruction, rail: LoadedRail
    ) -> Outcome:
        """Send an instruction that was never tried.

        The check comes before the place: so the checks of all rails share a statement. After a wait
        for a place it is made again.
        """
        checked = await self._check(item, instruction)
        if not isinstance(checked, CallPermit):
            return checked
        with self.concurrency.place(rail.rail_type, at_most=rail.concurrency_max) as place:
            if not place.take_now():
                if not await place.take():
                    return _full(rail)
                checked = await self._check(item, instruction)
                if not isinstance(checked, CallPermit):
                    return checked
            return await self._call(instruction, rail, permit=checked)

    async def _send_again(
        self, item: AnyItem, instruction: Instruction, rail: LoadedRail, *, past: PastCalls
    ) -> Outcome:
        """Send an instruction that was tried before, if what became of that allows it."""
        with self.concurrency.place(rail.rail_type, at_most=rail.concurrency_max) as place:
            if not await place.take():
                return _full(rail)
            finding = await self._find(instruction, past, rail)
            if not isinstance(finding, MaySend):
                return _outcome_of(finding)
            checked = await self._check(item, instruction, is_repeat=finding.is_repeat)
            if not isinstance(checked, CallPermit):
                return checked
            permit = self._limit_to_key(checked, finding)
            if permit.is_over and not checked.is_over:
                return _unknown("CANNOT_VERIFY", "the key expired before the call")
            return await self._call(instruction, rail, permit=permit, is_repeat=finding.is_repeat)

    def _limit_to_key(self, permit: CallPermit, finding: MaySend) -> CallPermit:
        """Return a permit that is over when the rail no longer recognises the key.

        The key was valid when the finding was made; since then the machine may have been suspended.
        """
        if finding.key_until is None:
            return permit
        left = (finding.key_until - instant(self.clock)).total_seconds()
        return permit._replace(until=min(permit.until, boot_seconds() + left))

    async def _call(
        self,
        instruction: Instruction,
        rail: LoadedRail,
        *,
        permit: CallPermit,
        is_repeat: bool = False,
    ) -> Outcome:
        """Call the rail. `is_repeat`: an earlier call under the same key may have paid."""
        self.crash_point("before_send")
        if permit.is_over:  # The process may have been suspended since the check.
            return LEASE_OVER
        # The adapter compares it again when it has a connection.
        limit = send_not_after.set(permit.until)
        try:
            result = await self._within(rail.timeout, rail.rail.send, instruction)
        finally:
            send_not_after.reset(limit)
        self.crash_point("after_send")
        return self._outcome(result, instruction, rail, is_repeat=is_repeat)

    async def _find(self, instruction: Instruction, past: PastCalls, rail: LoadedRail) -> Finding:
        """Find out what became of earlier calls: from what is known, or by asking the rail."""
        known = find_known(past, rail=rail)
        if isinstance(known, Paid | Refused | AskPerson):
            return known
        if known is not None:
            past = replace(past, doubts=())
        if not rail.rail.properties.can_query:
            return find_without_query(past, rail=rail, now=instant(self.clock))
        self.crash_point("before_query")
        found = await self._ask(instruction, rail)
        return find_from_answer(
            found, past, instruction=instruction, rail=rail, now=instant(self.clock)
        )

    async def _ask(self, instruction: Instruction, rail: LoadedRail) -> QueryResult:
        """Ask the rail; an adapter that raises, or returns something else, has no answer."""
        found = await outcome_of(self._within(rail.timeout, rail.rail.query, instruction))
        if isinstance(found, Exception):
            self.log.error("rail.failed", name=rail.rail_type, **describe(found))
            return NoAnswer("the adapter failed")
        return _to_query_result(found)

    async def _check(
        self, item: AnyItem, instruction: Instruction, *, is_repeat: bool = False
    ) -> CallPermit | Snooze | Hold:
        """Return the permit, or what keeps the call from being made: lease, switch, report.

        What may have been paid does not wait like any other: it stays unknown.
        """
        self.crash_point("before_fence")
        call = IntendedCall(
            item.token,
            item.id,
            instruction.rail_type,
            instruction.participant_id,
            instruction.outbox_id,
        )
        try:
            permit = await self.checker.check(call)
        except DatabaseAway as away:
            return Snooze(LOST_WAIT, f"the lease could not be checked: {away.reason}")
        self.crash_point("after_fence")
        if permit.is_over:
            return LEASE_OVER
        if permit.stop is None:
            return permit
        return _unknown("STOPPED", permit.stop) if is_repeat else Snooze(STOPPED_WAIT, permit.stop)

    async def _within(
        self, timeout: timedelta, call: RailCall[T], instruction: Instruction
    ) -> T | NoAnswer:
        """Call the rail; a call that its adapter does not end in time is cancelled."""
        watchdog = self._watchdogs.get(timeout)
        if watchdog is None:
            watchdog = self._watchdogs[timeout] = Watchdog(timeout + ADAPTER_GRACE)
        try:
            with watchdog.guard():
                return await call(instruction, timeout=timeout)
        except TimeoutError:
            return NoAnswer(f"no answer within {timeout.total_seconds():g} s")

    def _outcome(
        self,
        result: object,
        instruction: Instruction,
        rail: LoadedRail,
        *,
        is_repeat: bool,
    ) -> Outcome:
        """Return the outcome of a call.

        An answer that the rail may give before it looks at the key says nothing about the call
        that is repeated.
        """
        match result:
            case RailAnswer():
                outcome = _classified(result, instruction, rail, is_repeat=is_repeat)
            case NotSent(reason):
                ending = make_ending("RETRYABLE", error_code="NOT_SENT", error_message=reason)
                outcome = (
                    _unknown("NOT_SENT", reason)
                    if is_repeat
                    else Retry(to_text(reason), result=ending)
                )
            case NoAnswer(reason):
                outcome = _unknown("NO_ANSWER", reason, called=True)
            case _:  # Adapters are of other packages: no type checker has seen all of them.
                outcome = _unknown("NO_ANSWER", _foreign(result), called=True)
        if isinstance(outcome, Hold):
            self.log.warning(
                "instruction.became_unknown",
                outbox_id=str(instruction.outbox_id),
                name=rail.rail_type,
                reason=outcome.reason,
            )
        return outcome


def _without_rail(instruction: Instruction, past: PastCalls | None) -> Outcome:
    """Wait for the rail; what may have been paid does not wait like any other, it stays unknown."""
    reason = f"{NO_RAIL}{instruction.rail_type} in this process"
    if past is not None and past.doubts:
        return _unknown("NO_RAIL", reason)
    return Snooze(NO_RAIL_WAIT, reason)


def _full(rail: LoadedRail) -> Snooze:
    wait = FULL_WAIT * random.uniform(0.5, 1.5)  # noqa: S311  Not a secret.
    return Snooze(wait, f"rail {rail.rail_type} is at its concurrency")


def _classified(
    answer: RailAnswer, instruction: Instruction, rail: LoadedRail, *, is_repeat: bool
) -> Outcome:
    meaning = rail.classify(answer.code)
    properties = rail.rail.properties
    said = partial(make_ending, called=True, rail_code=answer.code, rail_reference=answer.reference)
    message = to_text(answer.message or f"answered with {answer.code}")
    if meaning in {"paid", "pending"} and differs(answer, instruction):
        return _left(said, "AMOUNT_MISMATCH")
    match meaning:
        case "paid" | "pending":
            is_pending = meaning == "pending" or properties.is_asynchronous
            awaits = is_pending and properties.can_query
            return Done(said("DISPATCHED", is_pending=is_pending, awaits_settlement=awaits))
        case "terminal" if is_repeat and not properties.can_query:
            return _left(said, "REFUSED_IN_DOUBT")
        case "terminal" if not is_repeat:
            ending = said("FAILED", error_code="TERMINAL", error_message=answer.message)
            return Dead(message, ending)
        case "retryable" if not is_repeat:
            ending = said("RETRYABLE", error_code="RETRYABLE", error_message=answer.message)
            return Retry(message, result=ending)
        case "terminal" | "retryable" | "unknown":
            return hold_unknown(
                message, said("UNKNOWN", error_code="UNKNOWN_CODE", error_message=message)
            )
        case _:
            assert_never(meaning)


def _left(said: Callable[..., RailEnding], code: PersonCode) -> Hold:
    reason = LEFT_REASONS[code]
    return hold_unknown(reason, said("UNKNOWN", error_code=code, error_message=reason))


def _to_query_result(found: object) -> QueryResult:
    return (
        found if isinstance(found, RailAnswer | NotFound | NoAnswer) else NoAnswer(_foreign(found))
    )


def _foreign(result: object) -> str:
    return f"the adapter returned {type(result).__qualname__}"


def _outcome_of(finding: Paid | Refused | AskAgain | AskPerson) -> Outcome:
    """Return the outcome of an attempt that makes no call, because of earlier ones."""
    match finding:
        case Paid():
            return Done(
                make_ending(
                    "DISPATCHED",
                    rail_code=finding.rail_code,
                    rail_reference=finding.rail_reference,
                    is_pending=finding.is_pending,
                    awaits_settlement=finding.awaits_settlement,
                )
            )
        case Refused():
            ending = make_ending(
                "FAILED",
                rail_code=finding.rail_code,
                rail_reference=finding.rail_reference,
                error_code="TERMINAL",
                error_message=finding.message,
            )
            return Dead(to_text(finding.message or f"refused with {finding.rail_code}"), ending)
        case AskAgain(reason=reason, may_be_paid=may_be_paid):
            return (
                _unknown("UNDECIDED", reason)
                if may_be_paid
                else Snooze(NO_ANSWER_WAIT, to_text(reason))
            )
        case AskPerson(code, reason):
            return _unknown(code, reason)
        case _:
            assert_never(finding)


def _stopped(stop: Stop, past: PastCalls | None) -> Outcome:
    """Apply a control. What may have been paid stays unknown: otherwise nobody would see it."""
    if isinstance(stop.outcome, Dead):
        return _failed(stop.code, stop.outcome.reason, past)
    if past is not None and past.doubts:
        return _unknown(stop.code, stop.outcome.reason or stop.code)
    return stop.outcome


def _failed(code: str, reason: str, past: PastCalls | None = None) -> Dead | Hold:
    """End an instruction without a call, unless an earlier one may have paid it."""
    if past is not None and (past.doubts or past.paid is not None):
        return _unknown(code, reason)
    return Dead(to_text(reason), make_ending("FAILED", error_code=code, error_message=reason))


def _unknown(code: str, reason: str, *, called: bool = False) -> Hold:
    ending = make_ending("UNKNOWN", called=called, error_code=code, error_message=reason)
    return hold_unknown(reason, ending)
