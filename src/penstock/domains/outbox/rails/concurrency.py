"""How many calls of each rail this process makes at once, so that one slow rail leaves room."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Self

from penstock.base.permits import Permits

# How long an instruction waits at a full rail. Longer, and those of a slow rail would take up the
# whole concurrency of the lane.
ROOM_WAIT = timedelta(milliseconds=50)


@dataclass(slots=True)
class RailConcurrency:
    """Permits of each rail; their number is given with each call, as rows change."""

    wait: timedelta = ROOM_WAIT
    _permits: dict[str, Permits] = field(default_factory=dict[str, Permits])

    def place(self, rail_type: str, *, at_most: int) -> "RailPlace":
        """Return a place to be taken in a `with` block, at whose end it is given back."""
        return RailPlace(self, rail_type, at_most)

    def enter_now(self, rail_type: str, *, at_most: int) -> bool:
        """Take a place if one is free."""
        return self._permits_of(rail_type, at_most).try_take()

    async def enter(self, rail_type: str, *, at_most: int) -> bool:
        """Take a place, at once or within `wait`; False if there is none."""
        permits = self._permits_of(rail_type, at_most)
        if permits.try_take():
            return True
        until = asyncio.get_running_loop().time() + self.wait.total_seconds()
        return await permits.wait(until)

    def leave(self, rail_type: str) -> None:
        """Pass the place to the call that waits longest, or release it."""
        self._permits[rail_type].release()

    def _permits_of(self, rail_type: str, at_most: int) -> Permits:
        permits = self._permits.get(rail_type)
        if permits is None:
            permits = self._permits[rail_type] = Permits(at_most)
        permits.resize(at_most)
        return permits


@dataclass(slots=True)
class RailPlace:
    """A place at a rail, for the duration of a `with` block."""

    concurrency: RailConcurrency
    rail_type: str
    at_most: int
    _is_taken: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_failure: object) -> None:
        if self._is_taken:
            self.concurrency.leave(self.rail_type)

    def take_now(self) -> bool:
        """Take the place if one is free."""
        self._is_taken = self.concurrency.enter_now(self.rail_type, at_most=self.at_most)
        return self._is_taken

    async def take(self) -> bool:
        """Take the place, at once or after a short wait; False if there is none."""
        self._is_taken = await self.concurrency.enter(self.rail_type, at_most=self.at_most)
        return self._is_taken
