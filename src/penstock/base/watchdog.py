"""Time limits for many short pieces of work: one timer watches them all.

`asyncio.timeout` makes and drops a timer each time, which took a quarter of a worker's time.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType

# A limit is looked at this often in its own length: one of 30 s ends within 31.5 s.
LOOKS_PER_LIMIT = 20
LOOK_SHORTEST = timedelta(milliseconds=5)


class Guard:
    """The limit of one task, used again and again: `with guard: await work`.

    Raises TimeoutError in the block when the limit is over. Belongs to the task that entered it.
    """

    __slots__ = ("_ends_at", "_is_over", "_limit", "_loop", "_task")

    def __init__(self, task: "asyncio.Task[object]", limit: timedelta) -> None:
        self._task = task
        self._limit = limit.total_seconds()
        self._loop = asyncio.get_running_loop()
        self._ends_at = float("inf")
        self._is_over = False

    def __enter__(self) -> None:
        self._ends_at = self._loop.time() + self._limit

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ends_at = float("inf")
        if self._is_over:
            self._is_over = False
            # Somebody else may have cancelled the task too; that one must go through.
            if self._task.uncancel() == 0 and kind is asyncio.CancelledError:
                raise TimeoutError from failure

    def look(self, now: float) -> None:
        """Cancel the work if its time is over."""
        if now >= self._ends_at and not self._is_over:
            self._is_over = True
            self._task.cancel()


class Watchdog:
    """Watches the guards of one kind of work, all with the same limit."""

    def __init__(self, limit: timedelta) -> None:
        self._limit = limit
        self._guards: set[Guard] = set()
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def guard(self) -> Generator[Guard]:
        """Give the current task a guard for as long as the block lasts."""
        task = asyncio.current_task()
        assert task is not None, "only a task can be cancelled"
        guard = Guard(task, self._limit)
        self._guards.add(guard)
        if self._timer is None:
            self._look_later()
        try:
            yield guard
        finally:
            self._guards.discard(guard)

    def _look_later(self) -> None:
        pause = max(self._limit / LOOKS_PER_LIMIT, LOOK_SHORTEST).total_seconds()
        self._timer = asyncio.get_running_loop().call_later(pause, self._look)

    def _look(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for guard in self._guards:
            guard.look(now)
        if self._guards:
            self._look_later()
