"""Wake a lane's loop: at a notification, at a due instant, or at the next poll."""

import asyncio
from dataclasses import dataclass, field

from penstock.base.aio import TIMER_ROUNDING

NEVER = float("inf")


@dataclass(slots=True)
class Wake:
    """A flag that a lane's loop waits for. Setters only wake the loop; the loop decides."""

    is_notified: bool = False  # Whether a notification came that no claim has followed yet.
    _event: asyncio.Event = field(default_factory=asyncio.Event)
    _rings_at: float = NEVER
    _timer: asyncio.TimerHandle | None = None

    def now(self) -> None:
        """Wake the loop."""
        self._event.set()

    def notified(self) -> None:
        """Wake the loop for a notification of new work."""
        self.is_notified = True
        self._event.set()

    def within(self, seconds: float) -> None:
        """Wake the loop after `seconds`, or earlier if that is already scheduled."""
        self.by(asyncio.get_running_loop().time() + max(0.0, seconds))

    def by(self, moment: float) -> None:
        """Wake the loop at `moment` of its clock, or earlier if that is already scheduled."""
        if self._rings_at <= moment:
            return
        self.cancel()
        self._rings_at = moment
        self._timer = asyncio.get_running_loop().call_at(moment + TIMER_ROUNDING, self._ring)

    async def wait(self) -> None:
        """Return once the loop has been woken since the last wait."""
        await self._event.wait()
        self._event.clear()

    def cancel(self) -> None:
        """Drop the timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._rings_at = None, NEVER

    def _ring(self) -> None:
        self._timer, self._rings_at = None, NEVER
        self._event.set()
