"""Timeouts for many short pieces of work: one timer checks them all.

`asyncio.timeout` creates and drops a timer each time, which took a quarter of a worker's time.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from time import monotonic
from types import TracebackType

# A timeout is checked this often in its own length: one of 30 s ends within 31.5 s.
CHECKS_PER_TIMEOUT = 20
CHECK_INTERVAL_MIN = timedelta(milliseconds=5)


class Watchdog:
    """Checks the guards of one kind of work, all with the same timeout.

    Work that exceeds it is cancelled. With `on_over`, for work that cannot be cancelled, it goes
    on: `on_over` is called at the timeout, and the guard raises when the work has ended.
    """

    def __init__(self, limit: timedelta, *, on_over: Callable[[], None] | None = None) -> None:
        self.limit = limit.total_seconds()
        self.on_over = on_over
        self._interval = max(limit / CHECKS_PER_TIMEOUT, CHECK_INTERVAL_MIN).total_seconds()
        self._guards: set[Guard] = set()
        self._timer: asyncio.TimerHandle | None = None

    def guard(self) -> "Guard":
        """Return a guard for the current task."""
        task = asyncio.current_task()
        assert task is not None, "only a task can be cancelled"
        return Guard(self, task)

    def watch(self, guard: "Guard") -> None:
        """Check a guard from now on."""
        self._guards.add(guard)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._check)

    def leave(self, guard: "Guard") -> None:
        """Check a guard no more."""
        self._guards.discard(guard)

    def _check(self) -> None:
        self._timer = None
        now = monotonic()
        for guard in self._guards:
            guard.check(now)
        if self._guards:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._check)


class Guard:
    """The timeout of one task, reusable: `with guard: await work`.

    Work that exceeds the timeout ends with TimeoutError. Belongs to the task that created it.
    """

    __slots__ = ("_ends_at", "_is_over", "_task", "_watchdog")

    def __init__(self, watchdog: Watchdog, task: "asyncio.Task[object]") -> None:
        self._watchdog = watchdog
        self._task = task
        self._ends_at = float("inf")
        self._is_over = False

    def __enter__(self) -> None:
        self._ends_at = monotonic() + self._watchdog.limit
        self._watchdog.watch(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._watchdog.leave(self)
        if self._is_over:
            self._is_over = False
            # The task may also have been cancelled from outside; that cancellation must go on.
            if self._watchdog.on_over is not None:
                has_ended = kind is None or issubclass(kind, Exception)
            else:
                has_ended = self._task.uncancel() == 0 and kind is asyncio.CancelledError
            if has_ended:
                raise TimeoutError from failure

    def check(self, now: float) -> None:
        """Cancel the work after its timeout, or report it."""
        if now >= self._ends_at and not self._is_over:
            self._is_over = True
            if self._watchdog.on_over is not None:
                self._watchdog.on_over()
            else:
                self._task.cancel()
