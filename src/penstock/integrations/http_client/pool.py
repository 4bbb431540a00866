"""The pool of a client's connections: which may be reused, and which have expired."""

import asyncio
import resource
from dataclasses import dataclass
from datetime import timedelta

from penstock.integrations.http_client.connection import HttpConnection
from penstock.integrations.http_client.response import ResponseParser

# One timer checks all connections, so a deadline is detected up to this late. A timer per request
# would cost 0.9 µs and `asyncio.timeout` 3.6 µs; checking 512 connections takes 16 µs.
CHECK_SECONDS = 0.02
CLOSE_SECONDS_MAX = 1.0  # Closing takes a few iterations of the event loop.
# More than lanes run calls at once: calls that wait for slow servers must not block the others.
PROCESS_CONNECTIONS_MAX = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """The defaults suit one process with the usual 1,024 file descriptors."""

    # Open at once, idle ones included. Further requests wait in a queue.
    connections_max: int = 512
    # Enough to keep all connections of one busy server; unused ones expire.
    idle_per_origin_max: int = 512
    # Many servers close after 5 s, such as Node, uvicorn and Apache. A request that crosses their
    # close on its way is a failed attempt, so the client closes first.
    idle_time: timedelta = timedelta(seconds=4)
    # A reused connection keeps its address; after this time a change in DNS takes effect.
    lifetime: timedelta = timedelta(minutes=5)
    # How long a DNS answer is cached. A connection goes to the checked address in any case.
    lookup_ttl: timedelta = timedelta(seconds=10)
    # Twice Node's limit; usual responses have less than 1 KiB of headers.
    head_bytes_max: int = 32 * 1024
    # More of a response than a log of attempts shows. The rest is cut off.
    body_bytes_max: int = 64 * 1024


def process_limits() -> PoolLimits:
    """Return limits that fit this process: a quarter of its file descriptors stays free."""
    open_files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections_max = max(64, min(PROCESS_CONNECTIONS_MAX, open_files_max * 3 // 4))
    return PoolLimits(connections_max=connections_max, idle_per_origin_max=connections_max)


class ConnectionPool:
    """Idle connections by origin, last used first, so that unused ones expire."""

    def __init__(self, limits: PoolLimits) -> None:
        self._limits = limits
        self._idle_seconds = limits.idle_time.total_seconds()
        self._open: set[HttpConnection] = set()
        self._idle: dict[str, list[HttpConnection]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # Set with the first connection.

    @property
    def open_count(self) -> int:
        """Return the number of connections, idle or busy."""
        return len(self._open)

    @property
    def idle_count(self) -> int:
        """Return the number of connections that wait for a request."""
        return sum(len(stack) for stack in self._idle.values())

    def take(self, origin: str) -> HttpConnection | None:
        """Return an idle connection to this origin on which nothing has arrived, or None."""
        while stack := self._idle.get(origin):
            connection = stack.pop()
            if not stack:
                del self._idle[origin]  # Users choose the origins: the dictionary must not grow.
            if connection.is_quiet():
                return connection
            connection.drop()
        return None

    def begin(self, origin: str) -> HttpConnection:
        """Return a connection to be opened; at the limit, the oldest idle one is dropped."""
        limits = self._limits
        if len(self._open) >= limits.connections_max:
            self._drop_oldest()
        self._loop = asyncio.get_running_loop()
        connection = HttpConnection(
            origin,
            ResponseParser(
                head_bytes_max=limits.head_bytes_max, body_bytes_max=limits.body_bytes_max
            ),
            expires_at=self._loop.time() + limits.lifetime.total_seconds(),
            on_idle=self._keep,
            on_closed=self._forget,
        )
        self._open.add(connection)
        if self._timer is None:
            self._check_later()
        return connection

    async def close(self) -> None:
        """Close all connections; requests in progress fail."""
        connections = list(self._open)
        for connection in connections:
            connection.drop()
        lost = [connection.lost for connection in connections if connection.lost is not None]
        if lost:
            await asyncio.wait(lost, timeout=CLOSE_SECONDS_MAX)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _keep(self, connection: HttpConnection) -> None:
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

    def _forget(self, connection: HttpConnection) -> None:
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

    def _check_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(CHECK_SECONDS, self._check)

    def _check(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for connection in [each for each in self._open if now >= each.until]:
            connection.expire()
        if self._open:
            self._check_later()
