"""The client: reuse or open a connection, send a request, return the response or raise."""

import asyncio
import ssl
from collections.abc import Coroutine, Sequence
from functools import cache
from math import inf
from time import perf_counter
from types import TracebackType
from typing import Any, Self

from msgspec import Struct

from penstock.base.errors import InvalidInput
from penstock.base.permits import Permits
from penstock.integrations.http_client.connection import HttpConnection, connect
from penstock.integrations.http_client.egress import Egress, EgressRefused
from penstock.integrations.http_client.errors import failure
from penstock.integrations.http_client.pool import ConnectionPool, PoolLimits
from penstock.integrations.http_client.request import (
    Headers,
    Route,
    Target,
    encode_get,
    encode_headers,
    encode_post,
    parse_url,
    prepare_route,
)
from penstock.integrations.http_client.resolver import HostResolver, Lookup, look_up
from penstock.integrations.http_client.response import Response


class Stats(Struct, frozen=True, kw_only=True):
    """Connections now, and totals since the client was created."""

    open_count: int
    idle_count: int
    opened_total: int


class Client:
    """Sends requests from one event loop; `async with` closes it.

    It limits connections, not requests per server: that is up to the caller. `tls` replaces the
    system's certificates, `lookup` the system's resolver.
    """

    def __init__(
        self,
        egress: Egress,
        *,
        limits: PoolLimits | None = None,
        tls: ssl.SSLContext | None = None,
        lookup: Lookup = look_up,
    ) -> None:
        limits = limits or PoolLimits()
        self._egress = egress
        self._tls = tls or _system_tls()
        self._resolver = HostResolver(egress, ttl=limits.lookup_ttl, lookup=lookup)
        self._pool = ConnectionPool(limits)
        # One permit per request in progress. There are as many permits as connections, so a
        # request with a permit finds a free connection or an idle one to replace.
        self._permits = Permits(limits.connections_max)
        self._opened_total = 0
        self._is_closed = False
        # Stored, because asyncio.get_running_loop() calls getpid() each time.
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

    def prepare(self, url: str, headers: Sequence[tuple[str, str]] = ()) -> Route:
        """Return a route for requests to `url`; raises InvalidInput for a bad URL or header.

        Whether its host may be reached is checked per connection.
        """
        return prepare_route(parse_url(url), headers)

    def check_url(self, url: str) -> None:
        """Raise InvalidInput for a bad URL, or one whose address or port may not be reached.

        A name is not resolved: where it leads is checked per connection.
        """
        target = parse_url(url, ports=self._egress.ports)
        if target.address is not None:
            try:
                self._egress.check(target.address)
            except EgressRefused as refused:
                raise InvalidInput("url", str(refused)) from refused

    def check_headers(self, headers: Sequence[tuple[str, str]]) -> None:
        """Raise InvalidInput for a header that cannot be sent."""
        encode_headers(headers)

    def get(
        self, route: Route, headers: Headers = (), *, timeout: float
    ) -> Coroutine[Any, Any, Response]:
        """Send a GET with the route's headers and these; otherwise as `post`."""
        return self._send(route, encode_get(route, headers), timeout)

    def post(
        self,
        route: Route,
        headers: Headers,
        body: bytes,
        *,
        timeout: float,
        not_after: float = inf,
    ) -> Coroutine[Any, Any, Response]:
        """Send a POST with the route's headers and these; return the response, whatever its status.

        `timeout` is in seconds and covers everything: the wait for a connection, DNS, connecting,
        TLS, and the response to its last byte. It is kept to within 0.02 s. Raises CallFailed if
        there is no complete response, and InvalidInput for a header before anything is sent.

        A request is sent once. A connection that the server has closed while it was idle is
        replaced before anything is sent; one that breaks later is a failure.

        `not_after` is the last instant, on the clock of `boot_seconds`, at which the request may be
        written: a suspension of the machine does not move it, as it moves `timeout`. After it,
        nothing is sent, and CallFailed has the kind `expired`.
        """
        return self._send(route, encode_post(route, headers, body), timeout, not_after=not_after)

    def stats(self) -> Stats:
        """Return figures for metrics."""
        return Stats(
            open_count=self._pool.open_count,
            idle_count=self._pool.idle_count,
            opened_total=self._opened_total,
        )

    async def close(self) -> None:
        """Close all connections; requests in progress and later ones fail as `closed`."""
        self._is_closed = True
        self._resolver.close()
        await self._pool.close()

    async def _send(
        self, route: Route, request: bytes, timeout: float, *, not_after: float = inf
    ) -> Response:
        started = perf_counter()
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        until = self._loop.time() + timeout
        if not self._permits.try_take() and not await self._permits.wait(until):
            raise failure("timeout", "timed out while waiting for a free connection")
        try:
            connection = self._pool.take(route.origin)
            if connection is None:
                connection = await self._open(route.target, until)
            return await connection.exchange(
                request, until=until, started=started, not_after=not_after
            )
        finally:
            self._permits.release()

    async def _open(self, target: Target, until: float) -> HttpConnection:
        self._check_open()
        addresses = await self._resolver.resolve(target, until=until)
        self._check_open()
        connection = self._pool.begin(target.origin)
        await connect(connection, target, addresses, tls=self._tls, until=until)
        self._opened_total += 1
        return connection

    def _check_open(self) -> None:
        if self._is_closed:
            raise failure("closed", "the client is closed")


@cache  # Reading the system's certificates takes 20 ms.
def _system_tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
