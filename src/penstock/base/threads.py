"""A pool of daemon threads for blocking calls of an event loop.

The interpreter joins the threads of `concurrent.futures` when it exits, so that one call that
hangs would keep a stopped process alive. These end with the process.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

IDLE_MAX = timedelta(seconds=30)  # A thread keeps its stack, and what a call left in its locals.


@dataclass(frozen=True, slots=True)
class Raised:
    """A call raised this. A value: a future cannot carry a StopIteration."""

    failure: BaseException


_Future: TypeAlias = asyncio.Future[Any]  # Of what the call returned, or Raised.
_Waiting: TypeAlias = tuple[Callable[[], Any], _Future]


class ThreadPool:
    """Up to `size_max` threads, started when they are needed; further calls wait for one."""

    def __init__(self, name: str, *, size_max: int) -> None:
        self._name = name
        self._size_max = size_max
        self._size = self._idle = 0
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()

    def submit(self, call: Callable[[], Any]) -> _Future:
        """Run `call` in a thread; the future gets what it returns, or Raised.

        A cancelled future prevents a call that has not begun, and does not end one that has.
        """
        future = asyncio.get_running_loop().create_future()
        with self._changed:
            self._waiting.append((call, future))
            if len(self._waiting) <= self._idle:
                self._changed.notify()
            elif self._size < self._size_max:
                self._size += 1
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return future

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            _run(*taken)
            del taken  # An idle thread must not keep the last call's arguments alive.

    def _take(self) -> _Waiting | None:
        """Return the next call; None if none came for a while, and the thread has to end."""
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._waiting, timeout=IDLE_MAX.total_seconds())
            self._idle -= 1
            if self._waiting:
                return self._waiting.popleft()
            self._size -= 1
            return None


def _run(call: Callable[[], Any], future: _Future) -> None:
    if future.cancelled():
        return
    try:
        result = call()
    except BaseException as failure:  # noqa: BLE001  The thread is reused; the waiting task gets it.
        result = Raised(failure)
    # A loop that is closed has nothing that waits for the result.
    with suppress(RuntimeError):
        future.get_loop().call_soon_threadsafe(_set, future, result)


def _set(future: _Future, result: object) -> None:
    if not future.done():
        future.set_result(result)
