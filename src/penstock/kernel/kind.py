"""What a lane's items mean to the process that runs them: the payload's type and the handler."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, TypeAlias, TypeVar

from penstock.kernel.item import Item, Outcome, Retry
from penstock.postgres.pool import Connection

P = TypeVar("P")

HandleOne: TypeAlias = Callable[[Item[P]], Awaitable[Outcome | None]]
HandleMany: TypeAlias = Callable[[list[Item[P]]], Awaitable[Sequence[Outcome | None]]]
Gather: TypeAlias = Callable[[Connection, Sequence[Any]], Awaitable[Sequence[Any]]]

TIMEOUT = timedelta(seconds=30)  # What a caller of an HTTP service commonly waits at most.


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[P]):
    """One handler of one lane. Exactly one of `handle` and `handle_many` is given.

    A handler that returns None has done its work. One that raises or exceeds `timeout` leaves the
    outcome to `when_unknown`: the default repeats, which is wrong for payments.

    With `gather`, handlers get what it makes of the payloads of all items that were claimed
    together, one for each: a query for hundreds instead of one for each. If it raises, the items
    are given back untried.
    """

    lane: str
    payload_type: type[P]
    handle: HandleOne[Any] | None = None
    handle_many: HandleMany[Any] | None = None
    gather: Gather | None = None
    timeout: timedelta = TIMEOUT
    when_unknown: Callable[[str], Outcome] = field(default=Retry)

    def __post_init__(self) -> None:
        assert (self.handle is None) != (self.handle_many is None)


AnyKind: TypeAlias = Kind[Any]
