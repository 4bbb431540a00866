"""The connections to one relay: how many, which is reused, and when each is closed."""

import asyncio
import ssl

from penstock.base.aio import TIMER_ROUNDING, detach
from penstock.base.permits import Permits
from penstock.integrations.smtp.errors import SendFailed
from penstock.integrations.smtp.open import open_session
from penstock.integrations.smtp.relay import ClientLimits, RelayAddress
from penstock.integrations.smtp.session import Session

CLOSE_SECONDS_MAX = 3.0  # Longer than QUIT may take.


class RelayPool:
    """Connections of one process to one relay, last used first, so that unused ones expire."""

    def __init__(
        self,
        relay: RelayAddress,
        *,
        ehlo_name: str,
        tls: ssl.SSLContext | None,
        limits: ClientLimits,
    ) -> None:
        self.relay = relay
        self.opened_total = 0
        self._ehlo_name = ehlo_name
        self._tls = tls
        self._limits = limits
        self._check_after_seconds = limits.check_after.total_seconds()
        self._idle_seconds = relay.idle_time.total_seconds()
        self._open: set[Session] = set()
        self._idle: list[Session] = []
        # One permit per connection in use. An idle connection has none, but there are never more
        # of both than permits, because a new one is opened only if no idle one is left.
        self._permits = Permits(relay.connections_max)
        self._quitting: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._loop = asyncio.get_running_loop()

    @property
    def open_count(self) -> int:
        """Return the number of connections, idle or in use."""
        return len(self._open)

    @property
    def idle_count(self) -> int:
        """Return the number of connections that wait for a message."""
        return len(self._idle)

    async def take(self, *, until: float, is_new: bool = False) -> Session:
        """Return a connection for one message, in the order of the calls; raises SendFailed.

        The caller gives it back. `is_new` is for a message that met a closed connection: it must
        not meet another.
        """
        self._check_open()
        if not self._permits.try_take() and not await self._permits.wait(until):
            raise SendFailed("connect", "busy", "timed out")
        try:
            if is_new and self._idle:
                self._idle[-1].drop()  # Makes room for the new one.
            reused = None if is_new else await self._reuse(until)
            return reused or await self._open_new(until)
        except BaseException:
            self._permits.release()
            raise

    def give_back(self, session: Session) -> None:
        """Keep the connection for the next message, or close it if it has served its time."""
        if session.is_closed:
            self._permits.release()
        elif self._is_closed or session.messages >= self.relay.messages_per_connection_max:
            self._quit(session)
        else:
            session.idle_since = self._loop.time()
            self._idle.append(session)
            self._permits.release()
            if self._timer is None:
                self._timer = self._loop.call_later(self._idle_seconds, self._close_idle)

    def retire(self) -> None:
        """Close idle connections now, and each other one after its message."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._idle:
            self._quit_idle(self._idle.pop())

    async def close(self) -> None:
        """Close all connections; sends in progress fail."""
        self.retire()
        self._permits.wake_all()
        if self._quitting:
            await asyncio.wait(self._quitting, timeout=CLOSE_SECONDS_MAX)
        for session in list(self._open):
            session.drop()

    async def _reuse(self, until: float) -> Session | None:
        """Return an idle connection that works, or None."""
        while self._idle:
            session = self._idle.pop()
            age = self._loop.time() - session.idle_since
            if age < self._check_after_seconds or await session.check(until=until):
                return session
            session.drop()
        return None

    async def _open_new(self, until: float) -> Session:
        self._check_open()
        session = await open_session(
            self.relay,
            ehlo_name=self._ehlo_name,
            tls=self._tls,
            limits=self._limits,
            until=until,
            on_closed=self._forget,
        )
        self.opened_total += 1
        self._open.add(session)
        return session

    def _check_open(self) -> None:
        if self._is_closed:
            raise SendFailed("connect", "closed", "the client is closed")

    def _forget(self, session: Session) -> None:
        self._open.discard(session)
        if session in self._idle:
            self._idle.remove(session)

    def _close_idle(self) -> None:
        """Close what has been idle for too long; the first in the list is idle for longest."""
        self._timer = None
        now = self._loop.time()
        while self._idle and now - self._idle[0].idle_since >= self._idle_seconds:
            self._quit_idle(self._idle.pop(0))
        if self._idle:
            due = self._idle[0].idle_since + self._idle_seconds + TIMER_ROUNDING
            self._timer = self._loop.call_at(due, self._close_idle)

    def _quit_idle(self, session: Session) -> None:
        if self._permits.try_take():
            self._quit(session)
        else:
            session.drop()  # Its permit is on the way to a message that waited.

    def _quit(self, session: Session) -> None:
        """Say QUIT; the permit is free after that, so the relay never sees more connections."""
        task = detach(self._quit_and_release(session))
        self._quitting.add(task)
        task.add_done_callback(self._quitting.discard)

    async def _quit_and_release(self, session: Session) -> None:
        try:
            await session.quit()
        finally:
            self._permits.release()
