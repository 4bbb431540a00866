"""The archive: one row for each ending of an attempt and each later event, only ever inserted.

Rows of attempts are written in the transaction that settles them, so both exist or neither.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal
from uuid import UUID

import msgspec

from penstock.base.log import Logger
from penstock.base.money import plain
from penstock.contract.announce import announce_apart
from penstock.domains.outbox.crash_point import CrashPoint, never_crash
from penstock.domains.outbox.ending import (
    EndState,
    RailEnding,
    make_ending,
    to_column,
    to_reference,
)
from penstock.domains.outbox.errors import UnknownInstruction
from penstock.domains.outbox.event import EVENTS, Announce, OutboxEvent
from penstock.domains.outbox.instruction import Instruction
from penstock.domains.outbox.loader import LoadedInstruction, OutboxRef
from penstock.domains.outbox.lookup import await_settlement
from penstock.kernel.item import Dead, Hold, Retry, SettledAttempt, Snooze
from penstock.postgres.array import to_array
from penstock.postgres.pool import Connection
from penstock.postgres.statement import statement

READ_SUBJECTS = statement(__package__, "read_subjects.sql")
RECORD_ATTEMPTS = statement(__package__, "record_attempts.sql")
WRITE_EVENT = statement(__package__, "write_event.sql")

ArchivedState = Literal[
    "DISPATCHED", "RETRYABLE", "UNKNOWN", "ZOMBIE_REQUEUE", "FAILED", "SETTLED", "RETURNED"
]


class _Subject(msgspec.Struct, frozen=True):
    """What an event says of an instruction that could not be loaded for its attempt."""

    item_id: int
    outbox_id: UUID
    instruction_id: str
    participant_id: str
    sequence_id: int
    rail_type: str
    amount: Decimal
    currency: str


def count_nothing(_state: str, _count: int) -> None:
    """Count nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """Writes what happened, and announces it to all listeners.

    `count` gets the states of rows that no attempt of a worker wrote, which counts its own.
    """

    log: Logger
    listeners: Sequence[Announce] = ()
    count: Callable[[str, int], None] = count_nothing
    crash_point: CrashPoint = never_crash

    async def record(
        self, db: Connection, token: int, attempts: Sequence[SettledAttempt]
    ) -> list[str]:
        """Archive settled attempts of a lease, in the transaction of their settle; return states.

        Attempts that were snoozed, or held without doubt before a call, have no row.
        """
        ended = [(each, ending) for each in attempts if (ending := _ending_of(each)) is not None]
        if not ended:
            return []
        self.crash_point("before_record")
        await db.execute(
            RECORD_ATTEMPTS,
            to_array(each.item_id for each, _ in ended),
            to_array(_outbox_id(each) or "NULL" for each, _ in ended),
            to_array(each.attempt for each, _ in ended),
            to_array(each.duration_ms for each, _ in ended),
            [ending.state for _, ending in ended],
            # Made fit once more: whatever made the ending, the settle must not fail for a text.
            [to_reference(ending.rail_reference) for _, ending in ended],
            [to_column(ending.rail_code) for _, ending in ended],
            [to_column(ending.error_code) for _, ending in ended],
            [to_column(ending.error_message) for _, ending in ended],
            attempts[0].claimed_at,
            token,
        )
        awaited = [each for each, ending in ended if ending.awaits_settlement]
        if awaited:
            await await_settlement(
                db,
                [each.item_id for each in awaited],
                [each.attempt for each in awaited],
                now=awaited[0].claimed_at,
            )
        if self.listeners:
            await self.publish(db, await _events_of(db, ended))
        self.crash_point("after_record")
        return [ending.state for _, ending in ended]

    async def write(  # noqa: PLR0913  One argument per column.
        self,
        db: Connection,
        outbox_id: UUID,
        state: ArchivedState,
        *,
        who: str,
        rail_code: str | None = None,
        rail_reference: str | None = None,
        error_code: str | None = None,
        error_message: str | None = None,
        at: datetime | None = None,
        attempt_no: int | None = None,
        is_pending: bool = False,
    ) -> None:
        """Insert a row about an instruction, in the caller's transaction, and announce it.

        `attempt_no` is the attempt that it is about; None is the last one in the archive.
        `is_pending` is for the event alone. Raises UnknownInstruction.
        """
        row = await db.fetchrow(
            WRITE_EVENT,
            outbox_id,
            state,
            who,
            to_column(rail_code),
            to_reference(rail_reference),
            error_code,
            to_column(error_message),
            at,
            attempt_no,
        )
        if row is None:
            raise UnknownInstruction(str(outbox_id))
        if state in EVENTS:
            event = OutboxEvent(
                type=EVENTS[state],
                rail_code=to_column(rail_code),
                rail_reference=to_reference(rail_reference),
                error_code=error_code,
                is_pending=is_pending,
                **dict(row.items(), amount=plain(row["amount"])),
            )
            await self.publish(db, [event])
        self.count(state, 1)

    async def publish(self, db: Connection, events: Sequence[OutboxEvent]) -> None:
        """Announce to each listener in a savepoint of its own.

        A listener that fails must neither undo what happened nor keep it from the others.
        """
        for announce in self.listeners:
            await announce_apart(db, events, announce=announce, log=self.log)


def _ending_of(settled: SettledAttempt) -> RailEnding | None:
    """Return what the archive keeps of an attempt; None if it keeps nothing."""
    ending = settled.ending
    if isinstance(ending, Snooze):
        return None
    if isinstance(ending.result, RailEnding):
        # A retry after the last attempt is dead.
        if settled.outcome == "dead" and ending.result.state == "RETRYABLE":
            return msgspec.structs.replace(ending.result, state="FAILED")
        return ending.result
    if isinstance(ending, Dead):
        # Ended by the kernel, without a call.
        return make_ending("FAILED", error_code="REFUSED", error_message=settled.reason)
    if isinstance(ending, Hold):
        return None  # Awaits approval, or the like.
    if isinstance(ending, Retry) and settled.preloaded is None:
        # It could not be loaded, so the handler was not called.
        state: EndState = "FAILED" if settled.outcome == "dead" else "RETRYABLE"
        return make_ending(state, error_code="NOT_LOADED", error_message=settled.reason)
    return make_ending("UNKNOWN", called=True, error_code="NO_OUTCOME")


def _outbox_id(settled: SettledAttempt) -> UUID | None:
    match settled.preloaded:
        case LoadedInstruction(instruction=instruction):
            return instruction.outbox_id
        case OutboxRef(outbox_id=outbox_id):
            return outbox_id
        case _:
            return None


async def _events_of(
    db: Connection, ended: Sequence[tuple[SettledAttempt, RailEnding]]
) -> list[OutboxEvent]:
    events: list[OutboxEvent] = []
    unloaded: dict[int, RailEnding] = {}
    for settled, ending in ended:
        if ending.state not in EVENTS:
            continue
        if isinstance(settled.preloaded, LoadedInstruction):
            events.append(_event_of(settled.preloaded.instruction, ending))
        else:
            unloaded[settled.item_id] = ending
    if unloaded:
        for row in await db.fetch(READ_SUBJECTS, list(unloaded)):
            subject = _Subject(**dict(row.items(), amount=plain(row["amount"])))
            events.append(_event_of(subject, unloaded[subject.item_id]))
    return events


def _event_of(subject: Instruction | _Subject, ending: RailEnding) -> OutboxEvent:
    return OutboxEvent(
        type=EVENTS[ending.state],
        outbox_id=subject.outbox_id,
        instruction_id=subject.instruction_id,
        participant_id=subject.participant_id,
        sequence_id=subject.sequence_id,
        rail_type=subject.rail_type,
        amount=subject.amount,
        currency=subject.currency,
        rail_code=ending.rail_code,
        rail_reference=ending.rail_reference,
        error_code=ending.error_code,
        is_pending=ending.is_pending,
    )
