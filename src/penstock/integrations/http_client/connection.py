"""One connection: open it to a checked address, then exchange one request at a time.

Which request gets which connection is decided in pool.py and client.py.
"""

import asyncio
import os
import select
import ssl
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from math import inf
from time import perf_counter
from typing import cast

from penstock.base.clock import boot_seconds
from penstock.base.errors import CallFailed
from penstock.integrations.http_client.errors import failure, within
from penstock.integrations.http_client.request import Target
from penstock.integrations.http_client.response import MalformedResponse, Response, ResponseParser

ADDRESSES_MAX = 4  # A name may have dozens of addresses; trying more rarely helps.


async def connect(
    connection: "HttpConnection",
    target: Target,
    addresses: Sequence[str],
    *,
    tls: ssl.SSLContext,
    until: float,
) -> None:
    """Open `connection` to one of the checked `addresses`, or drop it and raise CallFailed."""
    try:
        transport = await _connect_any(
            connection, target.port, addresses[:ADDRESSES_MAX], until=until
        )
        if target.is_tls:
            await _start_tls(connection, transport, target.host, tls=tls, until=until)
    except BaseException:
        connection.drop()
        raise


class HttpConnection(asyncio.Protocol):
    """Calls `on_idle` when it is ready for the next request, and `on_closed` once, at its end.

    The pool calls `expire` when the loop's time is `until`: the deadline of the request in
    progress, or the end of the idle time.
    """

    __slots__ = (
        "_loop",
        "_on_closed",
        "_on_idle",
        "_parser",
        "_pending",
        "_poll",
        "_started",
        "_transport",
        "expires_at",
        "is_closed",
        "lost",
        "origin",
        "until",
    )

    def __init__(
        self,
        origin: str,
        parser: ResponseParser,
        *,
        expires_at: float,
        on_idle: Callable[["HttpConnection"], None],
        on_closed: Callable[["HttpConnection"], None],
    ) -> None:
        self.origin = origin
        self.expires_at = expires_at
        self.until = inf
        self.is_closed = False
        self.lost: asyncio.Future[None] | None = None  # Done when the transport has closed.
        self._loop = asyncio.get_running_loop()
        self._parser = parser
        self._on_idle = on_idle
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self._pending: asyncio.Future[Response] | None = None
        self._poll: Callable[[int], list[tuple[int, int]]] | None = None
        self._started = 0.0

    def is_quiet(self) -> bool:
        """Return whether nothing has arrived since the last response, not even the end.

        The event loop may not have read it yet: it was busy, or the bytes have just arrived. A
        request on a closed connection is lost, and an unrequested response would be taken for the
        response to the next request.
        """
        assert self._poll is not None, "only an open connection is idle"
        return not self._poll(0)

    async def exchange(
        self, request: bytes, *, until: float, started: float, not_after: float = inf
    ) -> Response:
        """Send a request and return the response; its duration counts from `started`.

        Raises CallFailed; after `not_after` nothing is sent. It is never sent again: once a byte
        was written, the server may have processed it. If the caller is cancelled, the connection is
        dropped: the late response must not be taken for the response to the next request.
        """
        if self.is_closed or self._transport is None:
            raise failure("closed", "the connection was closed before the request was sent")
        if not_after < inf and boot_seconds() >= not_after:
            self.drop()
            raise failure("expired", "the last instant passed before the request was sent")
        pending: asyncio.Future[Response] = self._loop.create_future()
        self._pending = pending
        self._started = started
        self.until = until
        self._parser.begin()
        self._transport.write(request)
        try:
            return await pending
        finally:
            # If another request is pending by now, this one has its response.
            if self._pending is pending:
                self.drop()

    def expire(self) -> None:
        """Close the connection because its deadline or idle time has passed."""
        if self._pending is None:
            self.drop()
        elif self._parser.received_bytes:
            self._fail(failure("timeout", "timed out before the response was complete"))
        else:
            self._fail(failure("timeout", "timed out while waiting for a response"))

    def drop(self) -> None:
        """Close the connection at once. A repeat is harmless."""
        if self.is_closed:
            return
        self.is_closed = True
        self._on_closed(self)
        if self._transport is not None:
            self._transport.abort()
        if self._pending is not None:
            self._fail(failure("closed", "the client closed the connection"))

    def use_tls(self, transport: asyncio.Transport) -> None:
        """Continue on the encrypted transport."""
        self._transport = transport
        if self.is_closed:
            transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Implement asyncio.Protocol: keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is not a subclass.
        self.lost = self._loop.create_future()
        poller = select.poll()
        poller.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        self._poll = poller.poll
        if self.is_closed:
            # It was dropped while it was being opened.
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Implement asyncio.Protocol: parse the response."""
        if self._pending is None:
            # Unrequested data would be taken for the next request's response.
            self.drop()
            return
        try:
            is_complete = self._parser.feed(data)
        except MalformedResponse as flaw:
            self._fail(failure("malformed", str(flaw)))
            return
        if is_complete:
            self._finish(self._pending)

    def eof_received(self) -> None:
        """Implement asyncio.Protocol: the server has closed its side."""
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        """Implement asyncio.Protocol: the transport is closed."""
        self._end(is_broken=exc is not None)
        if self.lost is not None and not self.lost.done():
            self.lost.set_result(None)

    def _end(self, *, is_broken: bool = False) -> None:
        pending = self._pending
        if pending is None:
            self.drop()
        elif not is_broken and self._parser.end():
            self._finish(pending)
        else:
            self._fail(failure("closed", "the connection was closed before a complete response"))

    def _finish(self, pending: "asyncio.Future[Response]") -> None:
        assert self._transport is not None
        self._pending = None
        response = self._parser.response(perf_counter() - self._started)
        # A response may arrive before the request is fully sent; the rest would still follow.
        if self._parser.is_reusable and not self._transport.get_write_buffer_size():
            self._on_idle(self)
        else:
            self.drop()
        if not pending.done():
            pending.set_result(response)

    def _fail(self, why: CallFailed) -> None:
        pending, self._pending = self._pending, None
        self.drop()
        if pending is not None and not pending.done():
            pending.set_exception(why)


async def _connect_any(
    connection: HttpConnection, port: int, addresses: Sequence[str], *, until: float
) -> asyncio.Transport:
    """Try the addresses in order; each gets an equal share of the remaining time."""
    loop = asyncio.get_running_loop()
    *others, last = addresses
    for tried, address in enumerate(others):
        share = (until - loop.time()) / (len(addresses) - tried)
        try:
            return await _connect_to(connection, port, address, until=loop.time() + share)
        except CallFailed as failed:
            if failed.kind not in ("connect", "timeout"):
                raise
    return await _connect_to(connection, port, last, until=until)


async def _connect_to(
    connection: HttpConnection, port: int, address: str, *, until: float
) -> asyncio.Transport:
    """Connect to a literal address, so that no name is resolved again."""
    loop = asyncio.get_running_loop()
    async with within(until, "connecting"):
        try:
            transport, _ = await loop.create_connection(lambda: connection, address, port)
        except OSError as refused:
            raise failure("connect", _os_reason(refused)) from refused
    _check_peer(transport, address)
    return transport


def _check_peer(transport: asyncio.Transport, address: str) -> None:
    """Check that the socket's peer is the checked address."""
    peer = transport.get_extra_info("peername")
    if peer is None:
        raise failure("connect", "the connection was closed at once")
    if ip_address(peer[0]) != ip_address(address):
        raise failure("refused_address", "the connection went to another address")


async def _start_tls(
    connection: HttpConnection,
    transport: asyncio.Transport,
    host: str,
    *,
    tls: ssl.SSLContext,
    until: float,
) -> None:
    """Start TLS and verify the certificate against the host's name, whatever its address."""
    if connection.is_closed:
        # The server closed it or sent data first. asyncio and uvloop handle that differently.
        raise failure("tls", "TLS handshake failed: the connection was closed at once")
    loop = asyncio.get_running_loop()
    async with within(until, "negotiating TLS"):
        try:
            encrypted = await loop.start_tls(transport, connection, tls, server_hostname=host)
        except ssl.SSLCertVerificationError as refused:
            reason = f"certificate verification failed: {refused.verify_message}"
            raise failure("tls", reason) from refused
        except OSError as failed:
            raise failure("tls", f"TLS handshake failed: {_os_reason(failed)}") from failed
    if encrypted is None:
        raise failure("tls", "TLS handshake failed: the connection was closed")
    connection.use_tls(encrypted)


def _os_reason(error: OSError) -> str:
    """Return the system's message, without the address that it may contain."""
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    if error.errno is not None:
        return os.strerror(error.errno).lower()
    return type(error).__name__
