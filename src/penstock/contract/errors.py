"""The errors of declarations.

PenstockError
└── BadDomain
"""

from dataclasses import dataclass
from typing import ClassVar

from penstock.base.errors import ExitCode, PenstockError


@dataclass(eq=False)
class BadDomain(PenstockError):
    """A domain declares what it may not, or what another domain declares; refused at start."""

    code: ClassVar[str] = "bad-domain"
    exit_code: ClassVar[ExitCode] = 2
    domain: str
    reason: str

    def __str__(self) -> str:
        return f"domain {self.domain!r} {self.reason}"
