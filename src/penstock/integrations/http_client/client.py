"""The client: take or open a connection, send, and hand back the response or the one exception."""

import asyncio
import ssl
from collections import deque
from functools import cache
from time import perf_counter
from types import TracebackType
from typing import Self

from msgspec import Struct

from penstock.integrations.http_client.connect import connect
from penstock.integrations.http_client.connection import Connection, Stale
from penstock.integrations.http_client.egress import Egress
from penstock.integrations.http_client.failure import failure, within
from penstock.integrations.http_client.keepalive import KeepAlive
from penstock.integrations.http_client.limits import Limits
from penstock.integrations.http_client.resolver import Lookup, Resolver, look_up
from penstock.integrations.http_client.response import Response
from penstock.integrations.http_client.route import Headers, Route, encode_request
from penstock.integrations.http_client.target import Target


class Stats(Struct, frozen=True, kw_only=True):
    """What a client has open now, and what it has done since it began."""

    open_count: int
    idle_count: int
    opened_total: int
    retried_total: int


class Client:
    """Sends requests of one event loop; `async with` closes it.

    How many go to one receiver at once is the caller's business; here, only connections are
    limited. `tls` replaces the system's certificates, `lookup` its resolver.
    """

    def __init__(
        self,
        egress: Egress,
        *,
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
        lookup: Lookup = look_up,
    ) -> None:
        limits = limits or Limits()
        self._tls = tls or _system_tls()
        self._resolver = Resolver(egress, ttl=limits.lookup_ttl, lookup=lookup)
        self._kept = KeepAlive(limits)
        # A turn for each request under way. As there are no more turns than connections, who has
        # one finds a free connection or an idle one that can go. Counted by hand: a semaphore
        # takes 2 of a request's 18 µs, and nearly always there is a turn.
        self._turns = limits.connections_max
        self._line: deque[asyncio.Future[None]] = deque()
        self._opened_total = 0
        self._retried_total = 0
        self._is_closed = False
        # Kept, since asyncio asks the system for the process each time before it tells.
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def post(
        self, route: Route, headers: Headers, body: bytes, *, timeout: float
    ) -> Response:
        """Send `body` with the route's headers and these; return whatever the receiver answers.

        `timeout` is in seconds and for everything: the wait for a connection, DNS, connecting,
        TLS, and the response to its last byte; it is kept to within 0.02 s. Raises
        CallFailed if there is no full response, and BadHeader before anything is sent.
        """
        request = encode_request(route, headers, body)
        started = perf_counter()
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        until = self._loop.time() + timeout
        if self._turns > 0:
            self._turns -= 1
        else:
            await self._stand_in_line(until)
        try:
            kept = self._kept.take(route.origin)
            if kept is not None:
                try:
                    return await kept.ask(request, until=until, started=started)
                except Stale:
                    # The server may have closed it while our request was on its way, which is
                    # nobody's fault. HTTP allows a repeat only where it does no harm: a delivery
                    # is made at least once anyway and carries an id that stays the same. Once is
                    # enough: a new connection is not stale.
                    self._retried_total += 1
            connection = await self._open(route.target, until)
            return await connection.ask(request, until=until, started=started)
        finally:
            self._pass_turn_on()

    def stats(self) -> Stats:
        """Return figures for metrics."""
        return Stats(
            open_count=self._kept.open_count,
            idle_count=self._kept.idle_count,
            opened_total=self._opened_total,
            retried_total=self._retried_total,
        )

    async def close(self) -> None:
        """Close all connections; requests under way or to come fail as `closed`."""
        self._is_closed = True
        self._resolver.close()
        await self._kept.close()

    async def _stand_in_line(self, until: float) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            async with within(until, "waiting for a free connection"):
                await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                # It came in the very moment in which we gave up.
                self._pass_turn_on()
            raise

    def _pass_turn_on(self) -> None:
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._turns += 1

    async def _open(self, target: Target, until: float) -> Connection:
        self._check_open()
        addresses = await self._resolver.resolve(target, until=until)
        self._check_open()
        connection = self._kept.begin(target.origin)
        await connect(connection, target, addresses, tls=self._tls, until=until)
        self._opened_total += 1
        return connection

    def _check_open(self) -> None:
        if self._is_closed:
            raise failure("closed", "this client is closed")


@cache  # Reading the system's certificates takes 20 ms.
def _system_tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
