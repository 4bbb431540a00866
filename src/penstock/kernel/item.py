"""An item of work, what a caller hands in to make one, and how an attempt of it may end."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, NewType, TypeAlias, TypeVar

import msgspec

P = TypeVar("P")

ItemId = NewType("ItemId", int)


class Item(msgspec.Struct, Generic[P], frozen=True, kw_only=True):
    """One attempt's view of an item, as a handler receives it.

    A msgspec struct although it never goes on the wire: one is made per attempt, and a frozen
    dataclass takes ten times as long to make.
    """

    id: ItemId
    lane: str
    key: str | None
    order_key: str | None
    attempt: int  # Counts from 1; a snoozed attempt is not counted.
    due_at: datetime
    not_after: datetime | None
    token: int  # The fencing token of the lease: a later lease has a higher one.
    payload: P


AnyItem: TypeAlias = Item[Any]


class NewItem(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller asks for; `due_at` None means now, `key` None means no idempotency."""

    payload: object
    key: str | None = None
    due_at: datetime | None = None
    order_key: str | None = None
    not_after: datetime | None = None


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """An item that the database has; `is_new` is false when its key was already known."""

    id: ItemId
    is_new: bool


@dataclass(frozen=True, slots=True)
class Done:
    """It worked. `result` is kept with the attempt, as JSON."""

    result: object = None


DONE = Done()  # Most attempts end like this; one object serves them all.


@dataclass(frozen=True, slots=True)
class Retry:
    """It failed and may be repeated: after the lane's backoff, or after `after` if given.

    `attempts_max` is for this item instead of the lane's.
    """

    reason: str
    after: timedelta | None = None
    result: object = None
    attempts_max: int | None = None


@dataclass(frozen=True, slots=True)
class Snooze:
    """It was not tried (throttled, transport down): try again later, at no cost in attempts."""

    after: timedelta
    reason: str = "snoozed"


@dataclass(frozen=True, slots=True)
class Hold:
    """Nobody knows whether it worked: never repeat it blindly; reconcile, or ask a person."""

    reason: str
    result: object = None


@dataclass(frozen=True, slots=True)
class Dead:
    """It will never work. The item becomes a dead letter and can be replayed."""

    reason: str
    result: object = None


@dataclass(frozen=True, slots=True)
class Returned:
    """The worker gives the item back unstarted; nothing is recorded. Not for handlers."""


Outcome: TypeAlias = Done | Retry | Snooze | Hold | Dead
Ending: TypeAlias = Outcome | Returned
