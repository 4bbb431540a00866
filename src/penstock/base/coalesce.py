"""Calls that arrive while one is in progress are executed together after it.

A single call does not wait; under load, one round trip serves all waiting calls.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Generic, Protocol, TypeVar

from penstock.base.aio import detach, outcome_of

# Turns of the event loop between two batches. In the first, callers use their answers; in the
# second, new requests are read. Without them a batch has fewer calls and costs nearly the same:
# slots over HTTP reached three quarters of the rate.
TURNS = 2

K = TypeVar("K")
V = TypeVar("V")
K_contra = TypeVar("K_contra", contravariant=True)
V_co = TypeVar("V_co", covariant=True)


class Run(Protocol[K_contra, V_co]):
    """Answers a batch: one answer, or one exception to raise, for each call."""

    def __call__(
        self, batch: Sequence[K_contra], /
    ) -> Coroutine[Any, Any, Sequence[V_co | Exception]]: ...


class Coalescer(Generic[K, V]):
    """Single calls, answered in batches of at most `batch_max`, one batch at a time.

    All calls of a batch are made before it starts, so that no answer is older than its call.
    """

    def __init__(self, run: Run[K, V], *, batch_max: int) -> None:
        self._run = run
        self._batch_max = batch_max
        self._waiting: list[tuple[K, asyncio.Future[V]]] = []
        self._is_running = False

    async def ask(self, asked: K) -> V:
        """Return the answer or raise it; the failure of a batch is raised in all its calls."""
        return await self.submit(asked)

    def submit(self, asked: K) -> asyncio.Future[V]:
        """Make a call, and return where its answer will be; cancelled in time, it is left out."""
        answer: asyncio.Future[V] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, answer))
        if not self._is_running:
            self._is_running = True
            detach(self._answer_all())
        return answer

    async def _answer_all(self) -> None:
        """Answer until no call waits. Calls cancelled meanwhile are left out."""
        try:
            while self._waiting:
                batch = self._waiting[: self._batch_max]
                del self._waiting[: self._batch_max]
                await self._answer([pair for pair in batch if not pair[1].done()])
                for _ in range(TURNS):
                    await asyncio.sleep(0)
        finally:
            self._is_running = False

    async def _answer(self, batch: list[tuple[K, asyncio.Future[V]]]) -> None:
        if not batch:
            return
        found = await outcome_of(self._run_checked([asked for asked, _ in batch]))
        answers = [found] * len(batch) if isinstance(found, Exception) else found
        for (_, future), answer in zip(batch, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    async def _run_checked(self, batch: Sequence[K]) -> Sequence[V | Exception]:
        answers = await self._run(batch)
        assert len(answers) == len(batch), "a call would wait for ever"
        return answers
