"""The ancestors of all errors, and those of the kernel and of the process; domains add their own.

Each error has its data, a stable `code` and a one-line message.

An error also carries how the REST API answers it (`status`, `exposes`, `retry_after`), so that a
new error, also one of another package, needs no change in the API.

PenstockError
├── InvalidInput, BadSetting, BadApp, BadMigration
├── NotFound
│   └── UnknownLane, UnknownItem, UnknownKey, UnknownReplay
├── Conflict
│   └── KeyConflict, LaneNotEmpty, SlotRefused, StateConflict
├── Denied
│   └── Unauthenticated, Forbidden
└── Unavailable
    ├── DatabaseAway, DataFolderBusy, EmbeddedFailed, MissingExtra
    └── CallFailed, SealBroken
"""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import ClassVar, Literal
from uuid import UUID

# What a response shows of an error: message and data, its code alone, or nothing but the status.
Exposure = Literal["details", "code", "status"]


class PenstockError(Exception):
    """The ancestor of every error that Penstock raises on purpose.

    `code` is the type of the problem+json document and never changes. `status` is the HTTP status
    of the response. Below 500 the error is the caller's, who sees its details; from 500 on it is
    the operator's, and `exposes` says what a caller may see of it. `retry_after` becomes the header
    Retry-After.
    """

    code: ClassVar[str] = "penstock-error"
    status: ClassVar[int] = 500
    exposes: ClassVar[Exposure] = "status"
    retry_after: ClassVar[timedelta | None] = None


@dataclass(eq=False)
class InvalidInput(PenstockError):
    """A caller sent an invalid value; nothing was written."""

    code: ClassVar[str] = "invalid-input"
    status: ClassVar[int] = 400
    field: str
    reason: str

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}"


@dataclass(eq=False)
class BadSetting(PenstockError):
    """An environment variable has an invalid value; refused at start."""

    code: ClassVar[str] = "bad-setting"
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


@dataclass(eq=False)
class BadApp(PenstockError):
    """`--app module:name` does not lead to an application."""

    code: ClassVar[str] = "bad-app"
    spec: str
    reason: str

    def __str__(self) -> str:
        return f"app {self.spec}: {self.reason}"


@dataclass(eq=False)
class BadMigration(PenstockError):
    """The database does not match the migrations of this release."""

    code: ClassVar[str] = "bad-migration"
    owner: str
    migration: str
    reason: str

    def __str__(self) -> str:
        return f"migration {self.owner}/{self.migration}: {self.reason}"


class NotFound(PenstockError):
    """A name or an id does not exist."""

    code: ClassVar[str] = "not-found"
    status: ClassVar[int] = 404


@dataclass(eq=False)
class UnknownLane(NotFound):
    """No lane has this name; `known` helps to spot a typing error."""

    code: ClassVar[str] = "unknown-lane"
    lane: str
    known: tuple[str, ...] = ()

    def __str__(self) -> str:
        hint = f"; known lanes: {', '.join(self.known)}" if self.known else ""
        return f"no lane is named {self.lane!r}{hint}"


@dataclass(eq=False)
class UnknownItem(NotFound):
    """No item has this id, or retention has already dropped it."""

    code: ClassVar[str] = "unknown-item"
    item_id: int | str | UUID

    def __str__(self) -> str:
        return f"no item has the id {self.item_id}"


@dataclass(eq=False)
class UnknownKey(NotFound):
    """No API key has this id."""

    code: ClassVar[str] = "unknown-key"
    key_id: int | str | UUID

    def __str__(self) -> str:
        return f"no API key has the id {self.key_id}"


@dataclass(eq=False)
class UnknownReplay(NotFound):
    """No replay has this id."""

    code: ClassVar[str] = "unknown-replay"
    replay_id: int | str | UUID

    def __str__(self) -> str:
        return f"no replay has the id {self.replay_id}"


class Conflict(PenstockError):
    """The request is valid, but contradicts what is stored."""

    code: ClassVar[str] = "conflict"
    status: ClassVar[int] = 409


@dataclass(eq=False)
class KeyConflict(Conflict):
    """The key was used before for another payload; both hashes are SHA-256 in hex."""

    code: ClassVar[str] = "key-conflict"
    lane: str
    key: str
    item_id: int | str | UUID
    stored_hash: str
    given_hash: str

    def __str__(self) -> str:
        return (
            f"key {self.key!r} of lane {self.lane!r} belongs to item {self.item_id} "
            f"with another payload (stored {self.stored_hash}, given {self.given_hash})"
        )


@dataclass(eq=False)
class StateConflict(Conflict):
    """The item's state does not allow what was asked, such as cancelling a claimed one."""

    code: ClassVar[str] = "state-conflict"
    item_id: int | str | UUID
    state: str
    wanted: str

    def __str__(self) -> str:
        return f"item {self.item_id} is {self.state} and cannot become {self.wanted}"


@dataclass(eq=False)
class LaneNotEmpty(Conflict):
    """This part of a lane's policy can only change while the lane has no unfinished items."""

    code: ClassVar[str] = "lane-not-empty"
    lane: str
    field: str

    def __str__(self) -> str:
        return f"lane {self.lane!r} has unfinished items; {self.field} can change once it is empty"


@dataclass(eq=False)
class SlotRefused(Conflict):
    """The slot pool gives no slot for this time; `reason` says why."""

    code: ClassVar[str] = "slot-refused"
    pool: str
    reason: str

    def __str__(self) -> str:
        return f"pool {self.pool!r} gives no slot: {self.reason}"


class Denied(PenstockError):
    """The caller may not do this."""

    code: ClassVar[str] = "denied"


class Unauthenticated(Denied):
    """No API key was sent, or one that is unknown or revoked."""

    code: ClassVar[str] = "unauthenticated"
    status: ClassVar[int] = 401

    def __str__(self) -> str:
        return "a valid API key is required"


@dataclass(eq=False)
class Forbidden(Denied):
    """The API key lacks a scope."""

    code: ClassVar[str] = "forbidden"
    status: ClassVar[int] = 403
    scope: str

    def __str__(self) -> str:
        return f"this needs a key with the scope {self.scope!r}"


class Unavailable(PenstockError):
    """A dependency is unavailable now; trying again later may help."""

    code: ClassVar[str] = "unavailable"
    status: ClassVar[int] = 503
    # A restart of PostgreSQL takes less; after a longer failover callers ask again.
    retry_after: ClassVar[timedelta | None] = timedelta(seconds=5)


@dataclass(eq=False)
class DatabaseAway(Unavailable):
    """The database cannot be reached."""

    code: ClassVar[str] = "database-away"
    exposes: ClassVar[Exposure] = "code"
    reason: str

    def __str__(self) -> str:
        return f"the database is unavailable: {self.reason}"


@dataclass(eq=False)
class DataFolderBusy(Unavailable):
    """Another process runs the embedded server of this folder."""

    code: ClassVar[str] = "data-folder-busy"
    path: Path
    pid: int | None

    def __str__(self) -> str:
        holder = f"process {self.pid}" if self.pid else "another process"
        return f"the data folder {self.path} is in use by {holder}"


@dataclass(eq=False)
class EmbeddedFailed(Unavailable):
    """The embedded PostgreSQL did not start or stop; `reason` ends with its last log lines."""

    code: ClassVar[str] = "embedded-failed"
    path: Path
    reason: str

    def __str__(self) -> str:
        return f"the embedded PostgreSQL in {self.path} failed: {self.reason}"


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
