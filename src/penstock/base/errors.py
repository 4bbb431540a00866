"""Every error that Penstock raises, each with its data, a stable `code` and a one-line message.

PenstockError
├── InvalidInput, BadSetting, BadApp, BadMigration
├── NotFound
│   ├── UnknownLane, UnknownItem, UnknownKey, UnknownReplay, UnknownPool, UnknownSlot
│   └── UnknownEvent, UnknownSubscription
├── Conflict
│   ├── KeyConflict, LaneNotEmpty, StateConflict, SlotConflict, SlotRefused
│   └── EventConflict, ReplayConflict
├── Denied
│   └── Unauthenticated, Forbidden
└── Unavailable
    ├── DatabaseAway, DataFolderBusy, EmbeddedFailed, MissingExtra, PoolExhausted
    └── CallFailed, SealBroken
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from uuid import UUID


class PenstockError(Exception):
    """Anything that Penstock raises on purpose; `code` is the problem+json type, for ever."""

    code: ClassVar[str] = "penstock-error"


@dataclass(eq=False)
class InvalidInput(PenstockError):
    """A caller sent a value that we refuse; nothing was written."""

    code: ClassVar[str] = "invalid-input"
    field: str
    reason: str

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}"


@dataclass(eq=False)
class BadSetting(PenstockError):
    """An environment variable has a value that we refuse at start."""

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
    """The database and the migrations of this release do not belong together."""

    code: ClassVar[str] = "bad-migration"
    owner: str
    migration: str
    reason: str

    def __str__(self) -> str:
        return f"migration {self.owner}/{self.migration}: {self.reason}"


class NotFound(PenstockError):
    """The thing that was named does not exist."""

    code: ClassVar[str] = "not-found"


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
    """No replay of dead items has this id."""

    code: ClassVar[str] = "unknown-replay"
    replay_id: int | str | UUID

    def __str__(self) -> str:
        return f"no replay has the id {self.replay_id}"


@dataclass(eq=False)
class UnknownPool(NotFound):
    """No slot pool, which is what a config name stands for, has this name."""

    code: ClassVar[str] = "unknown-pool"
    pool: str

    def __str__(self) -> str:
        return f"no slot pool is named {self.pool!r}"


@dataclass(eq=False)
class UnknownSlot(NotFound):
    """The event has no slot."""

    code: ClassVar[str] = "unknown-slot"
    event_id: str

    def __str__(self) -> str:
        return f"event {self.event_id!r} has no slot"


@dataclass(eq=False)
class UnknownEvent(NotFound):
    """No event of this tenant has this id."""

    code: ClassVar[str] = "unknown-event"
    event_id: str

    def __str__(self) -> str:
        return f"no event has the id {self.event_id!r}"


@dataclass(eq=False)
class UnknownSubscription(NotFound):
    """No subscription has this id, or it was deleted."""

    code: ClassVar[str] = "unknown-subscription"
    subscription_id: str

    def __str__(self) -> str:
        return f"no subscription has the id {self.subscription_id!r}"


class Conflict(PenstockError):
    """The request is sound, but what is stored contradicts it."""

    code: ClassVar[str] = "conflict"


@dataclass(eq=False)
class KeyConflict(Conflict):
    """The key was used before for another payload; both hashes are hex."""

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
class SlotConflict(Conflict):
    """The event has a slot already, for another time or pool; `existing` shows it."""

    code: ClassVar[str] = "slot-conflict"
    event_id: str
    existing: Mapping[str, object]

    def __str__(self) -> str:
        return f"event {self.event_id!r} has a slot that was asked for differently"


@dataclass(eq=False)
class SlotRefused(Conflict):
    """The pool's calendar does not allow a slot for this time: after_cut_off or day_full."""

    code: ClassVar[str] = "slot-refused"
    pool: str
    reason: str

    def __str__(self) -> str:
        return f"pool {self.pool!r} gives no slot: {self.reason}"


@dataclass(eq=False)
class EventConflict(Conflict):
    """The event's id, or its idempotency key, stands for another event."""

    code: ClassVar[str] = "event-conflict"
    event_id: str

    def __str__(self) -> str:
        return f"event {self.event_id!r} was accepted before with another content"


@dataclass(eq=False)
class ReplayConflict(Conflict):
    """The replay's state does not allow what was asked, such as pausing one that is over."""

    code: ClassVar[str] = "replay-conflict"
    replay_id: int
    state: str

    def __str__(self) -> str:
        return f"replay {self.replay_id} is {self.state}"


class Denied(PenstockError):
    """The caller may not do this."""

    code: ClassVar[str] = "denied"


class Unauthenticated(Denied):
    """No key, or one that we do not know; the message does not tell which."""

    code: ClassVar[str] = "unauthenticated"

    def __str__(self) -> str:
        return "a valid API key is required"


@dataclass(eq=False)
class Forbidden(Denied):
    """The key is known but lacks a scope."""

    code: ClassVar[str] = "forbidden"
    scope: str

    def __str__(self) -> str:
        return f"this needs a key with the scope {self.scope!r}"


class Unavailable(PenstockError):
    """Something we stand on is not there now; trying again later may help."""

    code: ClassVar[str] = "unavailable"


@dataclass(eq=False)
class DatabaseAway(Unavailable):
    """The database cannot be reached."""

    code: ClassVar[str] = "database-away"
    reason: str

    def __str__(self) -> str:
        return f"the database is away: {self.reason}"


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
    """The embedded PostgreSQL did not start or stop; `reason` ends with its own last words."""

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
class PoolExhausted(Unavailable):
    """A pool has no free slot before the end of all calendars, the year 2200."""

    code: ClassVar[str] = "pool-exhausted"
    pool: str

    def __str__(self) -> str:
        return f"pool {self.pool!r} has no free slot before the year 2200"


@dataclass(eq=False)
class CallFailed(Unavailable):
    """A call to somebody else's endpoint has brought no answer; `kind` is a stable word.

    `reason` may be shown to whoever configured the endpoint: it has no secrets.
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
