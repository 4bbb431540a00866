"""The errors of the command line.

PenstockError
└── BadApp
"""

from dataclasses import dataclass
from typing import ClassVar

from penstock.base.errors import ExitCode, PenstockError


@dataclass(eq=False)
class BadApp(PenstockError):
    """`--app module:name` does not lead to an application."""

    code: ClassVar[str] = "bad-app"
    exit_code: ClassVar[ExitCode] = 2
    spec: str
    reason: str

    def __str__(self) -> str:
        return f"app {self.spec}: {self.reason}"
