"""An item, the request for a new one, and the outcomes of an attempt."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, NewType, Protocol, TypeAlias, TypeVar

import msgspec

P = TypeVar("P")

ItemId = NewType("ItemId", int)


class LastAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """How the last attempt of an item ended: `retry`, `hold`, `dead` or `lost`.

    A snoozed or returned attempt does not count. A `lost` one may have done its work: its worker
    died.
    """

    outcome: str
    reason: str | None
    ended_at: datetime
    token: int


class Fence(Protocol):
    """Says whether a lease is still valid."""

    async def is_valid(self, token: int, item_id: ItemId) -> bool: ...


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
    limit_keys: Mapping[str, str] | None = None
    last: LastAttempt | None = None  # Over all sets of attempts, also before a retry or replay.
    fence: Fence | None = None

    @property
    def tried(self) -> bool:
        """Whether an earlier attempt of this item has started, whatever `attempt` says.

        A retry or replay by an operator lets `attempt` start at 1 again.
        """
        return self.last is not None

    async def still_mine(self) -> bool:
        """Ask the database whether this attempt's lease is still valid; ask right before a call.

        False: the worker was suspended or cut off for longer than the lease, and another attempt
        may have been made, so return without calling. True is valid for the rest of the lease:
        what the worker does after another long suspension, nothing can prevent. Raises
        DatabaseAway if the database does not answer.
        """
        if self.fence is None:
            raise RuntimeError("this item was not claimed by a worker")
        return await self.fence.is_valid(self.token, self.id)


AnyItem: TypeAlias = Item[Any]


class NewItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item to accept; `due_at` None means now, `key` None means no idempotency."""

    payload: object
    key: str | None = None
    due_at: datetime | None = None
    order_key: str | None = None
    not_after: datetime | None = None
    limit_keys: Mapping[str, str] | None = None


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
    """The attempt failed permanently. The item becomes a dead letter and can be replayed."""

    reason: str
    result: object = None


@dataclass(frozen=True, slots=True)
class Returned:
    """The worker returns the item unstarted; nothing is recorded. Not for handlers."""


Outcome: TypeAlias = Done | Retry | Snooze | Hold | Dead
Ending: TypeAlias = Outcome | Returned


class SettledAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt as it was settled, for the domain that keeps a record of its own.

    `ending` is what the handler returned; `outcome` what became of it under the lane's policy, such
    as `dead` for a Retry after the last attempt. `preloaded` is what the kind's `preload` returned.
    """

    item_id: ItemId
    attempt: int  # Counts from 1 over all claims, snoozed ones included.
    claimed_at: datetime
    duration_ms: int
    ending: Outcome
    outcome: str
    reason: str | None
    preloaded: Any
