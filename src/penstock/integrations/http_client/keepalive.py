"""All open connections of a client: which may be used again, and which are over their time."""

import asyncio

from penstock.integrations.http_client.connection import Connection
from penstock.integrations.http_client.limits import Limits
from penstock.integrations.http_client.reader import Reader

# One timer watches all connections, so a deadline is noticed up to this late. A timer of its own
# would cost each request 0.9 µs and `asyncio.timeout` 3.6; a look at 512 connections takes 16 µs.
LOOK_SECONDS = 0.02
# Ending is a matter of a few turns of the loop.
CLOSE_SECONDS_MAX = 1.0


class KeepAlive:
    """Idle connections by origin, the one used last on top, so that the others can grow old."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._idle_seconds = limits.idle_time.total_seconds()
        self._open: set[Connection] = set()
        self._idle: dict[str, list[Connection]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # Once there is a connection.

    @property
    def open_count(self) -> int:
        """Return how many connections there are, idle or not."""
        return len(self._open)

    @property
    def idle_count(self) -> int:
        """Return how many of them wait for a request."""
        return sum(len(stack) for stack in self._idle.values())

    def take(self, origin: str) -> Connection | None:
        """Return a connection that can be used at once, if there is one."""
        stack = self._idle.get(origin)
        if stack is None:
            return None
        connection = stack.pop()
        if not stack:
            del self._idle[origin]  # Origins are strangers' choice and must not pile up.
        return connection

    def begin(self, origin: str) -> Connection:
        """Return a connection to be opened; if there are too many, the oldest idle one goes."""
        if len(self._open) >= self._limits.connections_max:
            self._drop_oldest()
        self._loop = asyncio.get_running_loop()
        connection = Connection(
            origin,
            Reader(self._limits),
            expires_at=self._loop.time() + self._limits.lifetime.total_seconds(),
            on_idle=self._keep,
            on_over=self._forget,
        )
        self._open.add(connection)
        if self._timer is None:
            self._look_later()
        return connection

    async def close(self) -> None:
        """End all connections; requests under way fail."""
        connections = list(self._open)
        for connection in connections:
            connection.drop()
        ended = [connection.ended for connection in connections if connection.ended is not None]
        if ended:
            await asyncio.wait(ended, timeout=CLOSE_SECONDS_MAX)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _keep(self, connection: Connection) -> None:
        assert self._loop is not None
        now = self._loop.time()
        stack = self._idle.get(connection.origin, ())
        if now >= connection.expires_at or len(stack) >= self._limits.idle_per_origin_max:
            connection.drop()
            return
        connection.until = min(now + self._idle_seconds, connection.expires_at)
        if stack:
            stack.append(connection)
        else:
            self._idle[connection.origin] = [connection]

    def _forget(self, connection: Connection) -> None:
        self._open.discard(connection)
        stack = self._idle.get(connection.origin)
        if stack is not None and connection in stack:
            stack.remove(connection)
            if not stack:
                del self._idle[connection.origin]

    def _drop_oldest(self) -> None:
        idle = [connection for stack in self._idle.values() for connection in stack]
        if idle:
            min(idle, key=lambda connection: connection.until).drop()

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for connection in [each for each in self._open if now >= each.until]:
            connection.expire()
        if self._open:
            self._look_later()
