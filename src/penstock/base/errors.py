"""The ancestors of all errors, and those that any layer raises.

Each error has its data, a stable `code` and a one-line message. Its class also says how the REST
API answers it (`status`, `exposes`, `retry_after`) and how a command ends with it (`exit_code`), so
that a new error, also one of another package, needs no change elsewhere.

PenstockError
├── InvalidInput, BadSetting
├── NotFound
├── Conflict
├── Denied
└── Unavailable
    └── MissingExtra, CallFailed, SealBroken

Each layer and each domain adds its own in its `errors.py`.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Literal

# What a response shows of an error: message and data, its code alone, or nothing but the status.
Exposure = Literal["details", "code", "status"]

# 1 failed, 2 bad input or setting, 3 conflict with what is stored, 4 a dependency is unavailable.
ExitCode = Literal[1, 2, 3, 4]


class PenstockError(Exception):
    """The ancestor of every error that Penstock raises on purpose.

    `code` is the type of the problem+json document and never changes. `status` is the HTTP status
    of the response. Below 500 the error is the caller's, who sees its details; from 500 on it is
    the operator's, and `exposes` says what a caller may see of it. `retry_after` becomes the header
    Retry-After. `exit_code` is that of a command.
    """

    code: ClassVar[str] = "penstock-error"
    status: ClassVar[int] = 500
    exit_code: ClassVar[ExitCode] = 1
    exposes: ClassVar[Exposure] = "status"
    retry_after: ClassVar[timedelta | None] = None


@dataclass(eq=False)
class InvalidInput(PenstockError):
    """A caller sent an invalid value; nothing was written."""

    code: ClassVar[str] = "invalid-input"
    status: ClassVar[int] = 400
    exit_code: ClassVar[ExitCode] = 2
    field: str
    reason: str

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}"


@dataclass(eq=False)
class BadSetting(PenstockError):
    """An environment variable has an invalid value; refused at start."""

    code: ClassVar[str] = "bad-setting"
    exit_code: ClassVar[ExitCode] = 2
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class NotFound(PenstockError):
    """A name or an id does not exist."""

    code: ClassVar[str] = "not-found"
    status: ClassVar[int] = 404
    exit_code: ClassVar[ExitCode] = 2


class Conflict(PenstockError):
    """The request is valid, but contradicts what is stored."""

    code: ClassVar[str] = "conflict"
    status: ClassVar[int] = 409
    exit_code: ClassVar[ExitCode] = 3


class Denied(PenstockError):
    """The caller may not do this."""

    code: ClassVar[str] = "denied"


class Unavailable(PenstockError):
    """A dependency is unavailable now; trying again later may help."""

    code: ClassVar[str] = "unavailable"
    status: ClassVar[int] = 503
    exit_code: ClassVar[ExitCode] = 4
    # A restart of PostgreSQL takes less; after a longer failover callers ask again.
    retry_after: ClassVar[timedelta | None] = timedelta(seconds=5)


@dataclass(eq=False)
class MissingExtra(Unavailable):
    """A feature needs an optional part of the package."""

    code: ClassVar[str] = "missing-extra"
    extra: str
    feature: str

    def __str__(self) -> str:
        return f"{self.feature} needs: pip install 'penstock[{self.extra}]'"


@dataclass(eq=False)
class CallFailed(Unavailable):
    """A call to an external server got no response; `kind` is a stable word.

    `reason` may be shown to the person who configured the endpoint: it contains no secrets.
    """

    code: ClassVar[str] = "call-failed"
    kind: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"


@dataclass(eq=False)
class SealBroken(Unavailable):
    """What was sealed cannot be opened: another key, other data, or sealed for something else."""

    code: ClassVar[str] = "seal-broken"
    about: str
    reason: str

    def __str__(self) -> str:
        return f"the sealed secret of {self.about} cannot be opened: {self.reason}"


def text_of(value: object) -> str:
    """Return the text of a value that a user gave, such as an exception, or else its class."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001  Its `__str__` may raise anything.
        return f"<{type(value).__qualname__}>"
