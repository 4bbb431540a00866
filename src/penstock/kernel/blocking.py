"""Plain functions as handlers: each call runs in a thread of the lane's own pool.

A thread cannot be cancelled. So an attempt ends when its thread has ended, also after a timeout:
until then the item is running and its lease is renewed, and no other attempt runs beside it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from dataclasses import replace
from datetime import timedelta
from functools import partial, wraps
from inspect import isawaitable, iscoroutinefunction
from typing import Any

from penstock.base.threads import Raised, ThreadPool
from penstock.kernel.kind import AnyKind

# For each lane in each process, whatever its concurrency: the default of AnyIO, and so of Starlette
# and FastAPI. More threads take more of the interpreter's time from the event loop.
THREADS_MAX = 40


class StillRunning(asyncio.CancelledError):
    """The task of a plain function was cancelled; `thread` is done when the function ends."""

    def __init__(self, thread: asyncio.Future[Any]) -> None:
        super().__init__()
        self.thread = thread


def in_threads(kind: AnyKind) -> AnyKind:
    """Return the kind with its handler in threads if that is a plain function, or else as it is."""
    if kind.handle is not None and not _is_async(kind.handle):
        return replace(kind, handle=_threaded(kind.handle, kind), is_blocking=True)
    if kind.handle_many is not None and not _is_async(kind.handle_many):
        return replace(kind, handle_many=_threaded(kind.handle_many, kind), is_blocking=True)
    return kind


def _is_async(handle: Callable[..., Any]) -> bool:
    # An object with `async def __call__` is no coroutine function itself.
    return iscoroutinefunction(handle) or iscoroutinefunction(type(handle).__call__)


def _threaded(handle: Callable[..., Any], kind: AnyKind) -> Callable[[Any], Awaitable[Any]]:
    pool = ThreadPool(f"penstock-{kind.lane}", size_max=THREADS_MAX)

    @wraps(handle)
    async def run(given: Any) -> Any:
        result = await _ended(pool.submit(partial(copy_context().run, handle, given)))
        return await _awaited(result, kind.timeout) if isawaitable(result) else result

    return run


async def _ended(thread: asyncio.Future[Any]) -> Any:
    try:
        result = await asyncio.shield(thread)
    except asyncio.CancelledError as cancelled:
        raise StillRunning(thread) from cancelled
    if not isinstance(result, Raised):
        return result
    if isinstance(result.failure, Exception):
        raise result.failure
    # SystemExit and the like ended the call; they must not end the worker.
    raise RuntimeError(
        f"the handler raised {type(result.failure).__qualname__}"
    ) from result.failure


async def _awaited(result: Awaitable[Any], timeout: timedelta) -> Any:
    """Await what a plain function returned, such as one that wraps a coroutine function."""
    async with asyncio.timeout(timeout.total_seconds()):
        return await result
