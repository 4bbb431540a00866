"""An item, the request for a new one, and the outcomes of an attempt."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, NewType, TypeAlias, TypeVar

import msgspec

P = TypeVar("P")

ItemId = NewType("ItemId", int)


class Item(msgspec.Struct, Generic[P], frozen=True, kw_only=True):
    """An item as a handler receives it, for one attempt.

    A msgspec struct although it is never serialised: one is created per attempt, and creating a
    frozen dataclass takes ten times as long.
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
    """An item to accept; `due_at` None means now, `key` None means no idempotency."""

    payload: object
    key: str | None = None
    due_at: datetime | None = None
    order_key: str | None = None
    not_after: datetime | None = None


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """An accepted item; `is_new` is false when its key already existed."""

    id: ItemId
    is_new: bool


@dataclass(frozen=True, slots=True)
class Done:
    """The attempt succeeded. `result` is kept with the attempt, as JSON."""

    result: object = None


DONE = Done()  # Shared: most attempts end like this.


@dataclass(frozen=True, slots=True)
class Retry:
    """The attempt failed and may be repeated: after the lane's backoff, or after `after` if given.

    `attempts_max` replaces the lane's for this item.
    """

    reason: str
    after: timedelta | None = None
    result: object = None
    attempts_max: int | None = None


@dataclass(frozen=True, slots=True)
class Snooze:
    """The item was not tried (throttled, transport down): try later; costs no attempt."""

    after: timedelta
    reason: str = "snoozed"


@dataclass(frozen=True, slots=True)
class Hold:
    """The result is unknown: never repeat the item blindly; reconcile, or ask a person."""

    reason: str
    result: object = None


@dataclass(frozen=True, slots=True)
class Dead:
    """The attempt failed for good. The item becomes a dead letter and can be replayed."""

    reason: str
    result: object = None


@dataclass(frozen=True, slots=True)
class Returned:
    """The worker returns the item unstarted; nothing is recorded. Not for handlers."""


Outcome: TypeAlias = Done | Retry | Snooze | Hold | Dead
Ending: TypeAlias = Outcome | Returned
