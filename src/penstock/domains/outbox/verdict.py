"""Whether an instruction may be sent now, as the controls decide it."""

from dataclasses import dataclass
from typing import TypeAlias

from penstock.kernel.item import Dead, Hold, Snooze


@dataclass(frozen=True, slots=True)
class Proceed:
    """Nothing stops the instruction."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The instruction must not be sent now; `code` is the archive's error_code if it is dead."""

    outcome: Hold | Snooze | Dead
    code: str


ControlVerdict: TypeAlias = Proceed | Stop

PROCEED = Proceed()
