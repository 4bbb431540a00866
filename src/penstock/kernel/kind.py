"""A lane's handler and the type of its payloads."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, TypeAlias, TypeVar, cast

from penstock.base.errors import InvalidInput
from penstock.kernel.item import Dead, Hold, Item, Outcome, Retry, SettledAttempt
from penstock.postgres.pool import Connection

P = TypeVar("P")

HandleOne: TypeAlias = Callable[[Item[P]], Awaitable[Outcome | None]]
HandleMany: TypeAlias = Callable[[list[Item[P]]], Awaitable[Sequence[Outcome | Exception | None]]]
MayClaim: TypeAlias = Callable[[Connection], Awaitable[bool]]
Preload: TypeAlias = Callable[[Connection, Sequence[Item[Any]]], Awaitable[Sequence[Any]]]
RecordSettled: TypeAlias = Callable[
    [Connection, int, Sequence[SettledAttempt]], Awaitable[Sequence[str] | None]
]

TIMEOUT = timedelta(seconds=30)  # A common upper limit of HTTP clients.


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[P]):
    """One handler of one lane. Exactly one of `handle` and `handle_many` is given.

    A handler that returns None returns Done. If it raises or exceeds `timeout`, `when_unknown`
    gives the outcome: the default repeats, which is wrong for payments. One that takes many items
    may return an exception in the place of an item's outcome: then that item alone has failed.

    `preload` gets all items of a claim and returns one value for each, which the handlers receive
    as payload: one query for hundreds of items. If it raises, the items are returned unstarted.

    `may_claim` is asked before each claim, on its connection: if it returns False, the lane's items
    are left to another claimer, and it is asked again a second later.

    `takes_early` gets what was preloaded, and returns whether the handler takes that item as soon
    as it is claimed: it passes on by itself how long the item has to wait, for its due instant and
    for the jitter. In a lane with a rate it has no effect, as the rate decides the start.

    `record` writes what the domain itself keeps about settled attempts, all of one lease, in the
    transaction that settles them. It gets the token of the lease and the attempts, of which there
    are none if the items were only given back. If it raises, that transaction is rolled back and
    settled again, so it must not fail for an item's sake. Attempts whose lease expired do not pass
    through it: the sweeper, which runs in any process, ends them. If it returns states, one for
    each attempt that it recorded, `attempts_total` counts the attempts by these in place of their
    outcomes.

    `is_blocking` is set for a plain function that runs in threads, which cannot be cancelled.
    """

    lane: str
    payload_type: type[P]
    handle: HandleOne[Any] | None = None
    handle_many: HandleMany[Any] | None = None
    preload: Preload | None = None
    may_claim: MayClaim | None = None
    takes_early: Callable[[Any], bool] | None = None
    record: RecordSettled | None = None
    timeout: timedelta = TIMEOUT
    when_unknown: Callable[[str], Outcome] = field(default=Retry)
    is_blocking: bool = False

    def __post_init__(self) -> None:
        assert (self.handle is None) != (self.handle_many is None)

    @property
    def handler_name(self) -> str:
        """The name of the handler, for log lines."""
        handler = self.handle or self.handle_many
        return getattr(handler, "__qualname__", type(handler).__qualname__)


AnyKind: TypeAlias = Kind[Any]


def check_kind(kind: AnyKind) -> None:
    """Raise InvalidInput for a timeout or a `when_unknown` that no attempt could end with.

    A result that is unknown is neither done nor untried, which are the meanings of Done and Snooze.
    """
    # Types are not enough: an application may be written without a type checker.
    timeout = cast("object", kind.timeout)
    if not isinstance(timeout, timedelta) or timeout <= timedelta(0):
        raise InvalidInput("timeout", "must be a timedelta above zero")
    if not callable(kind.when_unknown):
        raise InvalidInput("when_unknown", _WHEN_UNKNOWN_RULE)
    try:
        outcome: object = kind.when_unknown("unknown")
    except TypeError as refused:
        raise InvalidInput("when_unknown", _WHEN_UNKNOWN_RULE) from refused
    if not isinstance(outcome, Retry | Hold | Dead):
        given = type(outcome).__qualname__
        raise InvalidInput("when_unknown", f"{_WHEN_UNKNOWN_RULE}, not a {given}")


_WHEN_UNKNOWN_RULE = "must take a reason and return a Retry, Hold or Dead"
