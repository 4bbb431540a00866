"""The errors of the kernel: lanes, items, replays and API keys.

PenstockError
├── NotFound: UnknownLane, UnknownItem, UnknownKey, UnknownReplay
├── Conflict: KeyConflict, StateConflict, LaneNotEmpty, SlotRefused
└── Denied: Unauthenticated, Forbidden, LaneIsOwned
"""

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from penstock.base.errors import Conflict, Denied, ExitCode, NotFound


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
    """No item has this id, or in its lane this key, or retention has already dropped it."""

    code: ClassVar[str] = "unknown-item"
    item_id: int | str | UUID  # A text is a key.

    def __str__(self) -> str:
        if isinstance(self.item_id, str):
            return f"no item of the lane has the key {self.item_id}"
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


@dataclass(eq=False)
class KeyConflict(Conflict):
    """The key was used before for another payload; both hashes are SHA-256 in hex.

    `field` is what differs outside the payload, where a domain compares more than that, and
    `because` says how it differs.
    """

    code: ClassVar[str] = "key-conflict"
    lane: str
    key: str
    item_id: int | str | UUID
    stored_hash: str
    given_hash: str
    field: str | None = None
    because: str | None = None

    def __str__(self) -> str:
        if self.field is not None:
            known = f"key {self.key!r} belongs to item {self.item_id} with another {self.field}"
            return known if self.because is None else f"{known}: {self.because}"
        return (
            f"key {self.key!r} of lane {self.lane!r} belongs to item {self.item_id} "
            f"with another payload (stored {self.stored_hash}, given {self.given_hash})"
        )


@dataclass(eq=False)
class StateConflict(Conflict):
    """The item's state does not allow what was asked, such as cancelling a claimed one.

    `because` says more where the state alone does not explain it.
    """

    code: ClassVar[str] = "state-conflict"
    item_id: int | str | UUID
    state: str
    wanted: str
    because: str | None = None

    def __str__(self) -> str:
        refused = f"item {self.item_id} is {self.state} and cannot become {self.wanted}"
        return refused if self.because is None else f"{refused}: {self.because}"


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


@dataclass(eq=False)
class LaneIsOwned(Denied):
    """The lane belongs to a domain that does not allow this; `pointer` says what to use instead."""

    code: ClassVar[str] = "lane-is-owned"
    status: ClassVar[int] = 403
    exit_code: ClassVar[ExitCode] = 3
    lane: str
    owner: str | None
    verb: str
    pointer: str

    def __str__(self) -> str:
        refused = self.verb.replace("set:", "a change of ")
        return (
            f"lane {self.lane!r} belongs to the domain {self.owner!r}, "
            f"which refuses {refused}: {self.pointer}"
        )
