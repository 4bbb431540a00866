"""Calls that come while one is under way are carried out together once it has ended.

A caller who comes alone does not wait; under load, one round trip serves everybody who is there.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Generic, Protocol, TypeVar

from penstock.base.aio import detach, outcome_of

# Turns of the loop between two batches. In the first, those who got answers use them; in the
# second, what has come in meanwhile is read. Without them a batch has fewer callers and costs
# nearly the same: slots over HTTP came at three quarters of the rate.
TURNS = 2

K = TypeVar("K")
V = TypeVar("V")
K_contra = TypeVar("K_contra", contravariant=True)
V_co = TypeVar("V_co", covariant=True)


class Run(Protocol[K_contra, V_co]):
    """What answers a batch: one answer, or one exception to raise, for each that asks."""

    def __call__(
        self, batch: Sequence[K_contra], /
    ) -> Coroutine[Any, Any, Sequence[V_co | Exception]]: ...


class Coalescer(Generic[K, V]):
    """Single calls, answered in batches of at most `batch_max`, one batch at a time.

    Everybody in a batch has asked before it starts, so that no answer is older than its question.
    """

    def __init__(self, run: Run[K, V], *, batch_max: int) -> None:
        self._run = run
        self._batch_max = batch_max
        self._waiting: list[tuple[K, asyncio.Future[V]]] = []
        self._is_running = False

    async def ask(self, asked: K) -> V:
        """Return the answer or raise it; what fails a batch is raised to everybody in it."""
        answer: asyncio.Future[V] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, answer))
        if not self._is_running:
            self._is_running = True
            detach(self._answer_all())
        return await answer

    async def _answer_all(self) -> None:
        """Answer until nobody waits. Who has gone away in the meantime is not asked for."""
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
        assert len(answers) == len(batch), "somebody would wait for ever"
        return answers
