"""The errors of the outbox.

PenstockError
└── UnknownInstruction
"""

from dataclasses import dataclass
from typing import ClassVar

from penstock.base.errors import ExitCode, PenstockError


@dataclass(eq=False)
class UnknownInstruction(PenstockError):
    """There is no instruction with this outbox_id."""

    code: ClassVar[str] = "unknown-instruction"
    status: ClassVar[int] = 404
    exit_code: ClassVar[ExitCode] = 4
    outbox_id: str

    def __str__(self) -> str:
        return f"there is no instruction {self.outbox_id}"
