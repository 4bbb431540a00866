"""Notice a blocked event loop from a thread, while it is blocked.

The thread asks the loop for an answer and counts its own ticks until the answer comes: a process
that is suspended as a whole makes no ticks and is not taken for blocked.
"""

import asyncio
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

TICKS = 4  # Unanswered in a row. Fewer would report a thread that the machine delayed.

# Called in the thread, with the task that blocks the loop, the seconds so far, and its place.
OnBlocked = Callable[["asyncio.Task[Any] | None", float, str], None]


@contextmanager
def watch_loop(limit: Callable[[], timedelta], on_blocked: OnBlocked) -> Generator[None]:
    """Call `on_blocked` once whenever the running loop is blocked for longer than the limit."""
    watch = _LoopWatch(asyncio.get_running_loop(), limit, on_blocked)
    threading.Thread(target=watch.run, name="penstock-loop-watch", daemon=True).start()
    try:
        yield
    finally:
        watch.ended.set()


class _LoopWatch:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limit: Callable[[], timedelta],
        on_blocked: OnBlocked,
    ) -> None:
        self.ended = threading.Event()
        self._loop = loop
        self._loop_thread = threading.get_ident()
        self._limit = limit
        self._on_blocked = on_blocked
        self._answered = threading.Event()
        self._answered.set()

    def run(self) -> None:
        unanswered, waited = 0, 0.0
        while True:
            tick = self._limit().total_seconds() / TICKS
            if self.ended.wait(tick):
                return
            if self._answered.is_set():
                unanswered, waited = 0, 0.0
                self._ask()
                continue
            unanswered, waited = unanswered + 1, waited + tick
            if unanswered == TICKS:
                self._report(waited)

    def _ask(self) -> None:
        self._answered.clear()
        try:
            self._loop.call_soon_threadsafe(self._answered.set)
        except RuntimeError:
            self.ended.set()  # The loop is closed.

    def _report(self, seconds: float) -> None:
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        task = asyncio.current_task(self._loop)
        if frame is None or self._answered.is_set():
            return
        place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"
        self._on_blocked(task, seconds, place)
