"""What `penstock doctor` asks a domain: a check returns one finding."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from penstock.contract.resources import Resources


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, for a person; `fail` makes `penstock doctor` exit with 1."""

    verdict: Literal["ok", "warn", "fail"]
    check: str
    detail: str


Check: TypeAlias = Callable[[Resources], Awaitable[Finding]]
