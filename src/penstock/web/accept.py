"""Accept connections up to a maximum, and report when the system gives no more.

uvloop's own server closes connections silently when no file descriptor is left.
"""

import asyncio
import errno
import resource
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic

from penstock.base.aio import spawn
from penstock.base.log import Logger
from penstock.base.meter import Meter
from penstock.web.metrics import ACCEPT_FAILURES, TURNED_AWAY

ACCEPTS_AT_ONCE = 100  # Then requests in progress get a turn.
ACCEPT_RETRY_DELAY = timedelta(seconds=1)  # Meanwhile connections wait in the system's backlog.
LOG_INTERVAL = timedelta(seconds=10)  # A flood of connections is one line, not thousands.
FILES_SPARE = 64  # For the database, the log and so on; outgoing calls take three quarters.
CONNECTIONS_MIN = 16
READ_BYTES = 65_536


def default_connections_max() -> int:
    """Return a quarter of the files that this process may open, less a few."""
    files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(CONNECTIONS_MIN, files_max // 4 - FILES_SPARE)


@dataclass(slots=True, kw_only=True)
class Acceptor:
    """Accepts connections on one socket and opens a protocol for each."""

    listener: socket.socket
    open_protocol: Callable[[], asyncio.Protocol]
    count_open: Callable[[], int]
    connections_max: int
    full_response: Callable[[], bytes]
    log: Logger
    meter: Meter
    _opening: int = 0
    _turned_away: int = 0
    _logged_at: float = field(default=float("-inf"))

    async def run(self) -> None:
        """Accept until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                failed = await self._accept_until_failure(group)
                self.meter.count(ACCEPT_FAILURES)
                self.log.error(
                    "server.accept_failed",
                    reason=errno.errorcode.get(failed.errno or 0, str(failed.errno)),
                    connection_count=self.count_open(),
                    retry_in_seconds=ACCEPT_RETRY_DELAY.total_seconds(),
                )
                await asyncio.sleep(ACCEPT_RETRY_DELAY.total_seconds())

    async def _accept_until_failure(self, group: asyncio.TaskGroup) -> OSError:
        loop = asyncio.get_running_loop()
        failure: asyncio.Future[OSError] = loop.create_future()
        loop.add_reader(self.listener, self._accept_some, group, failure)
        try:
            return await failure
        finally:
            loop.remove_reader(self.listener)

    def _accept_some(self, group: asyncio.TaskGroup, failure: asyncio.Future[OSError]) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                connection, _ = self.listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as failed:
                if not failure.done():
                    failure.set_result(failed)
                return
            if self.count_open() + self._opening >= self.connections_max:
                self._turn_away(connection)
            else:
                self._opening += 1
                spawn(group, self._open(connection))

    async def _open(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(self.open_protocol, connection)
        except OSError:  # The client has gone already.
            connection.close()
        finally:
            self._opening -= 1

    def _turn_away(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.setblocking(False)  # noqa: FBT003  The socket module's own form.
            connection.send(self.full_response())
            connection.shutdown(socket.SHUT_WR)
            connection.recv(READ_BYTES)  # Unread bytes would reset it, and the response be lost.
        self.meter.count(TURNED_AWAY)
        self._turned_away += 1
        if monotonic() >= self._logged_at + LOG_INTERVAL.total_seconds():
            self.log.warning(
                "connections.refused",
                connection_count=self.count_open(),
                refused_count=self._turned_away,
            )
            self._logged_at, self._turned_away = monotonic(), 0
