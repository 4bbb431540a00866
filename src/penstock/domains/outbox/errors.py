"""The errors of the outbox.

PenstockError
├── Denied: ApprovalDenied, BadSignature
├── NotFound: UnknownInstruction, UnknownRail, UnknownCode, UnknownSwitch, UnknownSuspension,
│             UnknownCalendar, UnknownOutboxLimit, NoSimulator
├── Conflict: InstructionConflict, ResultMismatch, AlreadyDecided, DecisionRefused, ResultUnknown
└── Unavailable: RailNotLoaded
"""

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from penstock.base.errors import Conflict, Denied, NotFound, Unavailable


@dataclass(eq=False)
class UnknownInstruction(NotFound):
    """There is no instruction with this outbox_id."""

    code: ClassVar[str] = "unknown-instruction"
    outbox_id: str

    def __str__(self) -> str:
        return f"there is no instruction {self.outbox_id}"


@dataclass(eq=False)
class InstructionConflict(Conflict):
    """The instruction is known with another payload, or under another key, which may be paid.

    `outbox_id`, `stored_key` and `stored_hash` are those of the instruction that exists.
    """

    code: ClassVar[str] = "instruction-conflict"
    instruction_id: str
    idempotency_key: str
    stored_key: str
    outbox_id: str
    stored_hash: str
    given_hash: str

    def __str__(self) -> str:
        if self.stored_key == self.idempotency_key:
            what = f"with another payload (stored {self.stored_hash}, given {self.given_hash})"
        else:
            what = f"under the key {self.stored_key!r}, and has neither failed nor been returned"
        return f"instruction {self.instruction_id!r} exists as {self.outbox_id} {what}"


@dataclass(eq=False)
class UnknownRail(NotFound):
    """There is no rail of this type."""

    code: ClassVar[str] = "unknown-rail"
    rail_type: str

    def __str__(self) -> str:
        return f"there is no rail {self.rail_type!r}"


@dataclass(eq=False)
class UnknownCode(NotFound):
    """There is no such code in this set."""

    code: ClassVar[str] = "unknown-code"
    code_set: str
    rail_code: str

    def __str__(self) -> str:
        return f"there is no code {self.rail_code!r} in the set {self.code_set!r}"


class NoSimulator(NotFound):
    """The simulator does not run in this process."""

    code: ClassVar[str] = "no-simulator"

    def __str__(self) -> str:
        return "the simulator does not run in this process"


@dataclass(eq=False)
class RailNotLoaded(Unavailable):
    """This process cannot classify the code of a report, because it does not have the rail.

    It has no adapter for it, or cannot use its row; the same report to another process may do.
    """

    code: ClassVar[str] = "rail-not-loaded"
    rail_type: str

    def __str__(self) -> str:
        return f"this process cannot use the rail {self.rail_type}; report it again"


class BadSignature(Denied):
    """A report of a rail has no valid signature, or one of another time."""

    code: ClassVar[str] = "bad-signature"
    status: ClassVar[int] = 401

    def __str__(self) -> str:
        return "the header Penstock-Signature is missing or not valid"


@dataclass(eq=False)
class ResultMismatch(Conflict):
    """A rail reports another amount or currency than the instruction has; nothing was changed."""

    code: ClassVar[str] = "result-mismatch"
    outbox_id: UUID
    stored: str
    given: str

    def __str__(self) -> str:
        return f"instruction {self.outbox_id} is {self.stored}, but the report says {self.given}"


@dataclass(eq=False)
class UnknownSwitch(NotFound):
    """Nothing is stopped under this scope and name."""

    code: ClassVar[str] = "unknown-switch"
    scope: str
    name: str

    def __str__(self) -> str:
        return f"{self.scope} {self.name} is not stopped"


@dataclass(eq=False)
class UnknownSuspension(NotFound):
    """The participant is not suspended."""

    code: ClassVar[str] = "unknown-suspension"
    participant_id: str

    def __str__(self) -> str:
        return f"the participant {self.participant_id!r} is not suspended"


@dataclass(eq=False)
class UnknownCalendar(NotFound):
    """The rail has no calendar: it is always open."""

    code: ClassVar[str] = "unknown-calendar"
    rail_type: str

    def __str__(self) -> str:
        return f"the rail {self.rail_type!r} has no calendar"


@dataclass(eq=False)
class UnknownOutboxLimit(NotFound):
    """There are no limits of this scope in this currency."""

    code: ClassVar[str] = "unknown-outbox-limit"
    scope: str
    name: str
    currency: str

    def __str__(self) -> str:
        return f"there is no limit of {self.scope} {self.name!r} in {self.currency!r}"


@dataclass(eq=False)
class AlreadyDecided(Conflict):
    """Another person has approved or rejected the instruction; the first decision counts."""

    code: ClassVar[str] = "already-decided"
    outbox_id: str
    decision: str
    key_id: str

    def __str__(self) -> str:
        return f"instruction {self.outbox_id} was {self.decision} by {self.key_id}"


@dataclass(eq=False)
class DecisionRefused(Conflict):
    """The instruction is not in a state that allows this; `reason` says why."""

    code: ClassVar[str] = "decision-refused"
    outbox_id: str
    reason: str

    def __str__(self) -> str:
        return f"instruction {self.outbox_id} {self.reason}"


@dataclass(eq=False)
class ResultUnknown(Conflict):
    """The instruction may have been paid, so it cannot be ended as failed before that is known.

    `advice` names what decides about it now.
    """

    code: ClassVar[str] = "result-unknown"
    outbox_id: str
    advice: str

    def __str__(self) -> str:
        return f"instruction {self.outbox_id} may have been paid; {self.advice}"


@dataclass(eq=False)
class ApprovalDenied(Denied):
    """The key has produced the instruction, or was made by the key that has."""

    code: ClassVar[str] = "approval-denied"
    status: ClassVar[int] = 403
    outbox_id: str
    key_id: str

    def __str__(self) -> str:
        return (
            f"the key {self.key_id} has produced instruction {self.outbox_id}, or was made by the "
            "key that has: a second person must decide"
        )
