"""How many calls of each rail this process makes at once, so that one slow rail leaves room."""

import asyncio
from collections import Counter, defaultdict, deque
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

# How long an instruction waits at a full rail. Longer, and those of a slow rail would take up the
# whole concurrency of the lane.
ROOM_WAIT = timedelta(milliseconds=50)


@dataclass(slots=True)
class RailConcurrency:
    """Counts the calls of each rail; the maximum is given with each call, as rows change."""

    wait: timedelta = ROOM_WAIT
    _running: Counter[str] = field(default_factory=Counter[str])
    _waiting: dict[str, deque[asyncio.Future[None]]] = field(
        default_factory=lambda: defaultdict(deque)
    )

    def enter_now(self, rail_type: str, *, at_most: int) -> bool:
        """Take a place if one is free."""
        if self._running[rail_type] >= at_most:
            return False
        self._running[rail_type] += 1
        return True

    async def enter(self, rail_type: str, *, at_most: int) -> bool:
        """Take a place, at once or within `wait`; False if there is none."""
        if self.enter_now(rail_type, at_most=at_most):
            return True
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[rail_type].append(place)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.wait.total_seconds()):
                    await asyncio.shield(place)
        except asyncio.CancelledError:
            if place.done():
                self.leave(rail_type)
            raise
        finally:
            is_given = place.done()
            place.cancel()
        return is_given

    def leave(self, rail_type: str) -> None:
        """Give a place to the one that waits longest, or back."""
        waiting = self._waiting[rail_type]
        while waiting:
            place = waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._running[rail_type] -= 1
