"""A small HTTP/1.1 server for one purpose: take a request whole, answer it at once, hand it on.

Whatever a stranger sends costs him an answer or his connection, and us a bounded amount of memory.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from ipaddress import ip_address
from typing import Literal, cast

import httptools

from penstock.base.errors import InvalidInput

HEAD_BYTES_MAX = 64 * 1024
BODY_BYTES_MAX = 16 * 1024 * 1024  # 64 times what Penstock accepts of an event unless it is told.
CONNECTIONS_MAX = 1_000  # Ten times what one subscription opens unless it is told otherwise.
IDLE = timedelta(seconds=75)  # Longer than clients keep a connection for later.
BACKLOG = 512

BODILESS = {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A whole request. Headers with one name are joined; their names are in lower case."""

    received_at: datetime
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


Answer = Callable[[Received], int]  # Returns the status; must not raise.


@asynccontextmanager
async def receiving(answer: Answer, *, host: str, port: int) -> AsyncGenerator[str]:
    """Serve while the body runs and give the URL; raises InvalidInput if the port cannot be had."""
    listener = _listen(host, port)
    connections: set[_Connection] = set()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(answer, connections), sock=listener)
    try:
        yield _url(listener)
    finally:
        server.close()
        for connection in list(connections):
            connection.close()
        await server.wait_closed()


class _Connection(asyncio.Protocol):
    """One connection; its requests are answered one after the other, as they come."""

    def __init__(self, answer: Answer, connections: "set[_Connection]") -> None:
        self._answer = answer
        self._connections = connections
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._part: Literal["head", "body"] = "head"
        self._path = b""
        self._headers: list[tuple[str, str]] = []
        self._body = bytearray()
        self._bytes_count = 0  # Of the present message, all that came.

    # ------------------------------------------------------------------------------ asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own is none by class.
        self._connections.add(self)
        if len(self._connections) > CONNECTIONS_MAX:
            self.close()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  All ends are alike.
        self._connections.discard(self)
        self._transport = None
        if self._idle is not None:
            self._idle.cancel()

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._wait()
        self._bytes_count += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # The parser does not read bodies of such requests, so that we cannot ignore the wish.
            self._refuse(HTTPStatus.NOT_IMPLEMENTED)
        except httptools.HttpParserError:
            self._refuse(HTTPStatus.BAD_REQUEST)
        else:
            self._check_length()

    def close(self) -> None:
        """End the connection once what was answered has left."""
        if self._transport is not None:
            self._transport.close()

    # ------------------------------------------------------------------- callbacks of the parser

    def on_url(self, url: bytes) -> None:
        """Take a part of the path."""
        self._path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or one of the trailers after a body."""
        self._headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        """Refuse a body that is known to be too long; let a client go on that asks first."""
        self._part = "body"
        headers = dict(self._headers)
        if int(headers.get("content-length", "0")) > BODY_BYTES_MAX:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        elif headers.get("expect", "").lower() == "100-continue":
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """Take a part of the body; what is too long is refused when it has been fed."""
        if len(self._body) <= BODY_BYTES_MAX:
            self._body += body

    def on_message_complete(self) -> None:
        """Answer, and be ready for the next request."""
        if len(self._body) > BODY_BYTES_MAX:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        received = Received(
            received_at=datetime.now(UTC),
            method=self._parser.get_method().decode("latin-1"),
            path=self._path.decode("latin-1"),
            headers=_joined(self._headers),
            body=bytes(self._body),
        )
        self._part, self._path, self._headers, self._body = "head", b"", [], bytearray()
        self._bytes_count = 0
        is_closing = self._transport is None or self._transport.is_closing()
        if is_closing or self._parser.should_upgrade():
            return
        is_last = not self._parser.should_keep_alive()
        self._write(_response(self._answer(received), is_last=is_last))
        if is_last:
            self.close()

    # -------------------------------------------------------------------------------------------

    def _check_length(self) -> None:
        if self._part == "head" and self._bytes_count > HEAD_BYTES_MAX:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        elif self._bytes_count > HEAD_BYTES_MAX + BODY_BYTES_MAX:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)

    def _refuse(self, status: int) -> None:
        self._write(_response(status, is_last=True))
        self.close()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _wait(self) -> None:
        """Close the connection if nothing comes for a while from now on."""
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE.total_seconds(), self.close)


def _joined(headers: list[tuple[str, str]]) -> dict[str, str]:
    """Return headers by name; those given more than once are one with commas, as HTTP has it."""
    joined: dict[str, str] = {}
    for name, value in headers:
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined


def _response(status: int, *, is_last: bool) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [f"HTTP/1.1 {status} {phrase}"]
    if status not in BODILESS:
        lines.append("Content-Length: 0")
    if is_last:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(place[:2], family=family, backlog=BACKLOG)
    except (socket.gaierror, UnicodeError) as unknown:
        raise InvalidInput("--host", f"{host!r} is no address") from unknown
    except OSError as refused:
        reason = (refused.strerror or str(refused)).partition(" (while")[0]
        raise InvalidInput("--port", f"cannot listen on {host}:{port}: {reason}") from refused


def _url(listener: socket.socket) -> str:
    """Return where a sender on this machine finds us."""
    host, port = listener.getsockname()[:2]
    address = ip_address(host)
    if address.is_unspecified:
        address = ip_address("127.0.0.1" if address.version == 4 else "::1")
    return f"http://[{address}]:{port}/" if address.version == 6 else f"http://{address}:{port}/"
