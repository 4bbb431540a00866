"""The errors of what holds instructions back, and of decisions about them.

PenstockError ─ NotFound: UnknownSwitch, UnknownSuspension, UnknownCalendar
              ─ Conflict: AlreadyDecided, DecisionRefused, ResultUnknown ─ Denied: ApprovalDenied
"""

from dataclasses import dataclass
from typing import ClassVar

from penstock.base.errors import Conflict, Denied, NotFound


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
class AlreadyDecided(Conflict):
    """Another person has approved or rejected the instruction; the first decision counts."""

    code: ClassVar[str] = "already-decided"
    outbox_id: str
    decision: str
    key_id: str

    def __str__(self) -> str:
        return f"instruction {self.outbox_id} was {self.decision} with the key {self.key_id}"


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
    """The instruction may have been paid, so it cannot be ended as failed before that is known."""

    code: ClassVar[str] = "result-unknown"
    outbox_id: str

    def __str__(self) -> str:
        return f"instruction {self.outbox_id} may have been paid; use penstock outbox resolve"


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
