"""What can go wrong with a call to Temporal, and the translation of what its SDK raises.

Callers see TemporalFailed.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Literal

from temporalio.exceptions import TemporalError
from temporalio.service import RPCError, RPCStatusCode

from penstock.base.errors import Unavailable

FailureKind = Literal[
    "unavailable",  # No answer, or one that says nothing about the request itself.
    "refused",  # The server refuses this request, and would refuse it again.
]

# Everything else is about the server, the account or the connection, not about one request.
REFUSED = frozenset(
    {
        RPCStatusCode.INVALID_ARGUMENT,
        RPCStatusCode.ALREADY_EXISTS,
        RPCStatusCode.FAILED_PRECONDITION,
        RPCStatusCode.OUT_OF_RANGE,
    }
)

# The SDK raises RuntimeError when it cannot connect, and when its native part fails.
FAILURES = (TemporalError, RuntimeError, OSError)


@dataclass(eq=False)
class TemporalFailed(Unavailable):
    """A call to Temporal failed. Whether it took effect is unknown if `kind` is `unavailable`."""

    code: ClassVar[str] = "temporal-failed"
    kind: FailureKind
    reason: str

    def __str__(self) -> str:
        return f"temporal: {self.kind}: {self.reason}"


@contextmanager
def translated() -> Generator[None]:
    """Raise TemporalFailed for what the SDK raises in the block."""
    try:
        yield
    except FAILURES as failure:
        raise translate(failure) from failure


def translate(failure: Exception, *, to: str | None = None) -> TemporalFailed:
    """Return what a caller sees of an exception of the SDK; `to` says which server was called."""
    where = "" if to is None else f"{to}: "
    match failure:
        case RPCError(status=status, message=message):
            kind = "refused" if status in REFUSED else "unavailable"
            return TemporalFailed(kind, f"{where}{status.name.lower()}: {message}")
        case TemporalError():
            return TemporalFailed("refused", f"{where}{type(failure).__name__}: {failure}")
        case _:
            return TemporalFailed("unavailable", f"{where}{type(failure).__name__}: {failure}")
