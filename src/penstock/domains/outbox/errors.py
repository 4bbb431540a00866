"""The errors of the outbox.

PenstockError
├── NotFound: UnknownInstruction
└── Conflict: InstructionConflict
"""

from dataclasses import dataclass
from typing import ClassVar

from penstock.base.errors import Conflict, NotFound


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
