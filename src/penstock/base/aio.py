"""Tasks with an owner: the only module that creates them. Groups, shielding, supervision."""

import asyncio
import random
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

from penstock.base.log import Logger, describe

T = TypeVar("T")
U = TypeVar("U")

RETRY_DELAY_FIRST = timedelta(milliseconds=100)  # PostgreSQL takes at least this long to restart.
RETRY_DELAY_MAX = timedelta(
    seconds=10
)  # Someone who has repaired a failure should not wait longer.

# Seconds to add to a timer that must not fire early: uvloop rounds to the nearest millisecond.
TIMER_ROUNDING = 0.0005


def spawn(
    group: asyncio.TaskGroup, work: Coroutine[Any, Any, T], *, name: str | None = None
) -> asyncio.Task[T]:
    """Start `work` as a task of `group`."""
    return group.create_task(work, name=name)


@asynccontextmanager
async def alongside(*works: Coroutine[Any, Any, object]) -> AsyncGenerator[None]:
    """Run `works` while the body runs and cancel them when it ends.

    If one of them fails, the body is cancelled. A single failure leaves the block as itself,
    several leave it as an ExceptionGroup.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
    except BaseExceptionGroup as failures:
        only, *others = failures.exceptions
        if others:
            raise
        raise only from only.__cause__


async def finish(work: Coroutine[Any, Any, T] | asyncio.Future[T], *, within: timedelta) -> T:
    """Await `work`; after a cancellation, it may continue for at most `within`.

    The cancellation is never swallowed: it is raised again as soon as `work` has ended. Only a
    coroutine needs a task of its own.
    """
    future = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError as cancelled:
        await _outlive_cancellation(future, within=within)
        failure = None if future.cancelled() else future.exception()
        raise cancelled from failure


async def _outlive_cancellation(future: asyncio.Future[Any], *, within: timedelta) -> None:
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + within.total_seconds()
    while not future.done() and (left := ends_at - loop.time()) > 0:
        # A second Ctrl-C changes nothing: the deadline is near and applies.
        with suppress(asyncio.CancelledError):
            await asyncio.wait({future}, timeout=left)
    if not future.done():
        future.cancel()
        await asyncio.wait({future})


async def meanwhile(awaited: Coroutine[Any, Any, T], work: Callable[[], U]) -> tuple[T, U]:
    """Do blocking `work` while a server answers what is `awaited`; return both results."""
    task = asyncio.get_running_loop().create_task(awaited)
    try:
        await asyncio.sleep(0)  # The request is sent now; its answer is read after the work.
        made = work()
    except BaseException:
        await asyncio.wait({task})
        raise
    return await task, made


async def outcome_of(work: Coroutine[Any, Any, T]) -> T | Exception:
    """Await `work` and return what it returns, or the exception that it raises."""
    try:
        return await work
    except Exception as failure:  # noqa: BLE001  The caller passes it on.
        return failure


def detach(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Run `work`, which ends by itself and never raises, in a task that may outlive its caller."""
    task = asyncio.get_running_loop().create_task(work)
    _detached.add(task)  # The loop itself keeps only a weak reference.
    task.add_done_callback(_detached.discard)
    return task


_detached: set[asyncio.Task[None]] = set()


async def supervise(
    run: Callable[[], Awaitable[None]],
    *,
    name: str,
    log: Logger,
    delay_first: timedelta = RETRY_DELAY_FIRST,
    delay_max: timedelta = RETRY_DELAY_MAX,
) -> None:
    """Await `run()` until it returns; whenever it raises, log that, wait and call it again.

    Delays grow up to `delay_max` and start over after a run that lasted longer than that.
    """
    loop = asyncio.get_running_loop()
    delays = retry_delays(first=delay_first, longest=delay_max)
    while True:
        started = loop.time()
        try:
            return await run()
        except Exception as failure:  # noqa: BLE001  A supervisor outlives whatever it supervises.
            if loop.time() - started > delay_max.total_seconds():
                delays = retry_delays(first=delay_first, longest=delay_max)
            delay = next(delays)
            log.error(
                "task.failed", task=name, retry_in_seconds=round(delay, 3), **describe(failure)
            )
        await asyncio.sleep(delay)


def retry_delays(
    *, first: timedelta = RETRY_DELAY_FIRST, longest: timedelta = RETRY_DELAY_MAX
) -> Iterator[float]:
    """Yield seconds to wait before each next try: doubling, capped, reduced by up to a half.

    The random part keeps many workers from reconnecting all at once to a restarted server.
    """
    seconds = first.total_seconds()
    while True:
        yield seconds * random.uniform(0.5, 1)  # noqa: S311  Not a secret.
        seconds = min(2 * seconds, longest.total_seconds())


class BlockingLoop:
    """An event loop in its own thread, for callers that do not await."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="penstock-blocking", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work` on the loop and return its result to the calling thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """Stop the loop and wait for its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
