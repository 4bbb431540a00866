"""A dedicated thread for calls that block: a call that never returns ends with the process.

The threads of an executor would be joined at exit, for as long as a broker is unavailable.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

from penstock.integrations.kafka.client import FAILURES, translate

T = TypeVar("T")


class OwnThread:
    """Makes one call after another, in the order of `call`."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    async def call(self, work: Callable[..., T], *arguments: Any) -> T:
        """Return the result of `work`; errors of the library are translated."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            try:
                result = work(*arguments)
            except FAILURES as failure:
                _resolve(answer, answer.set_exception, translate(failure))
            except BaseException as failure:
                _resolve(answer, answer.set_exception, failure)
                raise
            else:
                _resolve(answer, answer.set_result, result)

        self._calls.put(run)
        return await answer

    def end(self) -> None:
        """End the thread after all calls made so far."""
        self._calls.put(None)

    def _serve(self) -> None:
        while (run := self._calls.get()) is not None:
            run()


def _resolve(answer: asyncio.Future[T], settle: Callable[[Any], None], outcome: object) -> None:
    def settle_if_awaited() -> None:
        if not answer.done():
            settle(outcome)

    # The caller may have ended, and its event loop with it.
    with suppress(RuntimeError):
        answer.get_loop().call_soon_threadsafe(settle_if_awaited)
