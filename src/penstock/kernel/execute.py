"""Run attempts of items and return their outcomes. Touches no database."""

import asyncio
from collections.abc import Sequence
from typing import Any

from penstock.base.log import Logger
from penstock.base.watchdog import Guard, Watchdog
from penstock.kernel.blocking import StillRunning
from penstock.kernel.claim import Claimed
from penstock.kernel.failures import FailureLog
from penstock.kernel.item import DONE, Dead, Done, Fence, Hold, Item, Outcome, Retry, Snooze
from penstock.kernel.kind import AnyKind
from penstock.kernel.payload import UNDECODABLE, decoder

OUTCOMES = (
    Done,
    Retry,
    Snooze,
    Hold,
    Dead,
)  # A constant: a union would be created for every attempt.


def watchdog_of(kind: AnyKind, log: Logger) -> Watchdog:
    """Return the watchdog of a kind's handlers; a plain function is waited for and reported."""
    if not kind.is_blocking:
        return Watchdog(kind.timeout)
    line = {"lane": kind.lane, "handler": kind.handler_name}
    seconds = kind.timeout.total_seconds()
    return Watchdog(
        kind.timeout,
        on_over=lambda: log.warning("handler.overran", timeout_seconds=seconds, **line),
    )


def to_item(
    claimed: Claimed, kind: AnyKind, token: int, *, fence: Fence | None = None
) -> Item[Any]:
    """Return the handler's item; raises one of UNDECODABLE for a payload of another type."""
    return Item(
        id=claimed.id,
        lane=kind.lane,
        key=claimed.key,
        order_key=claimed.order_key,
        attempt=claimed.attempt - claimed.forgiven + 1,
        due_at=claimed.due_at,
        not_after=claimed.not_after,
        limit_keys=claimed.limit_keys,
        token=token,
        payload=decoder(kind.payload_type).decode(claimed.payload),
        last=claimed.last,
        fence=fence,
    )


async def execute(
    claimed: Claimed,
    kind: AnyKind,
    token: int,
    *,
    guard: Guard,
    fence: Fence,
    failures: FailureLog,
) -> Outcome:
    """Return the outcome of one attempt; a handler's failure is an outcome, not an exception.

    `guard` limits the handler's time; it raises TimeoutError.
    """
    assert kind.handle is not None
    if claimed.preload_failure is not None:
        return _not_preloaded(claimed.preload_failure, claimed, kind, failures=failures)
    try:
        item = claimed.preloaded or to_item(claimed, kind, token, fence=fence)
    except UNDECODABLE as refused:
        return Dead(f"payload: {refused}")
    try:
        with guard:
            return _checked(await kind.handle(item), kind)
    except TimeoutError:
        return kind.when_unknown("timed out")
    except BaseException as failure:
        # A handler may raise anything: that costs an attempt, never the worker.
        if not _is_of_handler(failure):
            raise
        return kind.when_unknown(failures.add(failure, claimed.id))


async def execute_many(
    batch: Sequence[Claimed],
    kind: AnyKind,
    token: int,
    *,
    guard: Guard,
    fence: Fence,
    failures: FailureLog,
) -> list[Outcome]:
    """Return the outcomes of a batch handler, one per item in their order."""
    assert kind.handle_many is not None
    items: list[Item[Any]] = []
    outcomes: dict[int, Outcome] = {}
    for claimed in batch:
        if claimed.preload_failure is not None:
            outcomes[claimed.id] = _not_preloaded(
                claimed.preload_failure, claimed, kind, failures=failures
            )
            continue
        try:
            items.append(claimed.preloaded or to_item(claimed, kind, token, fence=fence))
        except UNDECODABLE as refused:
            outcomes[claimed.id] = Dead(f"payload: {refused}")
    given = await _handle_many(items, kind, guard=guard, failures=failures)
    for item, outcome in zip(items, given, strict=True):
        outcomes[item.id] = outcome
    return [outcomes[claimed.id] for claimed in batch]


async def _handle_many(
    items: list[Item[Any]], kind: AnyKind, *, guard: Guard, failures: FailureLog
) -> list[Outcome]:
    assert kind.handle_many is not None
    if not items:
        return []
    try:
        with guard:
            given = list(await kind.handle_many(items))
    except TimeoutError:
        return [kind.when_unknown("timed out")] * len(items)
    except BaseException as failure:
        if not _is_of_handler(failure):
            raise
        return [kind.when_unknown(failures.add(failure, items[0].id))] * len(items)
    if len(given) != len(items):
        reason = f"the handler returned {len(given)} outcomes for {len(items)} items"
        return [kind.when_unknown(reason)] * len(items)
    return [
        kind.when_unknown(failures.add(each, item.id))
        if isinstance(each, Exception)
        else _checked(each, kind)
        for item, each in zip(items, given, strict=True)
    ]


def _is_of_handler(failure: BaseException) -> bool:
    """Return whether the handler itself has failed: its task is neither cancelled nor interrupted.

    A handler that awaits what somebody else has cancelled raises CancelledError as well. An
    interrupt is the second Ctrl-C of a person.
    """
    if isinstance(failure, asyncio.CancelledError):
        task = asyncio.current_task()
        is_cancelled = task is not None and task.cancelling() > 0
        return not is_cancelled and not isinstance(failure, StillRunning)
    return not isinstance(failure, KeyboardInterrupt | GeneratorExit)


def _not_preloaded(
    failure: Exception, claimed: Claimed, kind: AnyKind, *, failures: FailureLog
) -> Outcome:
    """Return the outcome of an item whose preload has failed: its handler has not run.

    Where an earlier attempt may have done its work, a repeat that the handler has not looked at
    must not let the item die.
    """
    reason = failures.add(failure, claimed.id)
    if claimed.last is not None and claimed.last.outcome in {"lost", "hold"}:
        return kind.when_unknown(reason)
    return Retry(reason)


def _checked(outcome: object, kind: AnyKind) -> Outcome:
    """Treat None as done, and any other value that is not an outcome as unknown."""
    if outcome is None or (isinstance(outcome, Done) and outcome.result is None):
        return DONE
    if isinstance(outcome, OUTCOMES):
        return outcome
    return kind.when_unknown(f"the handler returned {type(outcome).__qualname__}, not an outcome")
