"""The errors of the outbox.

PenstockError
├── NotFound: UnknownInstruction
└── Conflict: InstructionConflict
├── UnknownInstruction
└── NotFound: UnknownRail, UnknownCode, NoSimulator
└── UnknownInstruction
"""

from dataclasses import dataclass
from typing import ClassVar

from penstock.base.errors import Conflict, NotFound
from penstock.base.errors import ExitCode, NotFound, PenstockError


@dataclass(eq=False)
class UnknownInstruction(NotFound):
    """There is no instruction with this outbox_id."""

    code: ClassVar[str] = "unknown-instruction"
from penstock.base.errors import ExitCode, PenstockError
class UnknownInstruction(PenstockError):
    status: ClassVar[int] = 404
    exit_code: ClassVar[ExitCode] = 4
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
class UnknownRail(NotFound):
    """There is no rail of this type."""
    code: ClassVar[str] = "unknown-rail"
    rail_type: str
        return f"there is no rail {self.rail_type!r}"
@dataclass(eq=False)
class UnknownCode(NotFound):
    """There is no such code in this set."""
    code: ClassVar[str] = "unknown-code"
    code_set: str
    rail_code: str
        return f"there is no code {self.rail_code!r} in the set {self.code_set!r}"
class NoSimulator(NotFound):
    """The simulator does not run in this process."""
    code: ClassVar[str] = "no-simulator"
        return "the simulator does not run in this process"
