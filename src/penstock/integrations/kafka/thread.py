"""A thread of its own for calls that block: a call that never returns ends with the process.

Threads of a pool would be waited for at the end, for as long as a broker is away.
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
    """Makes one call after another, in the order in which they are asked for."""

    def __init__(self, name: str) -> None:
        self._orders: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    async def call(self, work: Callable[..., T], *arguments: Any) -> T:
        """Return what `work` returns; what the library raises comes as an error of ours."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def order() -> None:
            try:
                result = work(*arguments)
            except FAILURES as failure:
                _tell(answer, answer.set_exception, translate(failure))
            except BaseException as failure:
                _tell(answer, answer.set_exception, failure)
                raise
            else:
                _tell(answer, answer.set_result, result)

        self._orders.put(order)
        return await answer

    def end(self) -> None:
        """Let the thread end when it has done all that was asked for."""
        self._orders.put(None)

    def _serve(self) -> None:
        while (order := self._orders.get()) is not None:
            order()


def _tell(answer: asyncio.Future[T], settle: Callable[[Any], None], outcome: object) -> None:
    def settle_if_awaited() -> None:
        if not answer.done():
            settle(outcome)

    # Who asked may be gone, and the loop with him.
    with suppress(RuntimeError):
        answer.get_loop().call_soon_threadsafe(settle_if_awaited)
