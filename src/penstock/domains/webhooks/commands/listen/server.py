"""Receive requests with uvicorn: read each to its end, answer with a status, pass it on.

A client can use no more than a bounded amount of memory and time. Needs the extra `api`.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any

import uvicorn

from penstock.base.errors import InvalidInput
from penstock.domains.webhooks.commands.listen.received import Received

HEAD_BYTES_MAX = 64 * 1024
BODY_BYTES_MAX = 16 * 1024 * 1024  # 64 times the default limit of an event.
CONNECTIONS_MAX = 1_000  # Ten times the default concurrency of a subscription.
IDLE = timedelta(seconds=75)  # Longer than clients keep an idle connection.
BACKLOG = 512
SHUTDOWN_GRACE = timedelta(seconds=1)  # Requests are answered at once; only half-sent ones wait.

BODILESS = {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}

StatusOf = Callable[[Received], int]  # Returns the status; must not raise.
Message = dict[str, Any]


@asynccontextmanager
async def receiving(answer: StatusOf, *, host: str, port: int) -> AsyncGenerator[str]:
    """Serve while the body runs and yield the URL; raises InvalidInput if it cannot listen."""
    listener = _listen(host, port)
    server = uvicorn.Server(_config(_Receiver(answer)))
    # Not `serve()`: it would install its own signal handlers.
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup(sockets=[listener])
    try:
        yield _url(listener)
    finally:
        await server.shutdown(sockets=[listener])


class _Receiver:
    """The ASGI application."""

    def __init__(self, answer: StatusOf) -> None:
        self._answer = answer

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        """Answer one request with a status and no body."""
        headers = _joined(scope["headers"])
        if scope["method"] == "CONNECT":
            # 200 would promise a tunnel.
            await _send(send, HTTPStatus.NOT_IMPLEMENTED, is_last=True)
            return
        if int(headers.get("content-length", "0")) > BODY_BYTES_MAX:
            await _send(send, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, is_last=True)
            return
        try:
            body = await _read_body(receive)
        except _Refused as refused:
            await _send(send, refused.status, is_last=True)
            return
        if body is None:
            return
        received = Received(
            received_at=datetime.now(UTC),
            method=scope["method"],
            path=_path(scope),
            headers=headers,
            body=body,
        )
        await _send(send, self._answer(received))


class _Refused(Exception):
    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status)
        self.status = status


async def _read_body(receive: Any) -> bytes | None:
    """Return the body, or None if the client has disconnected; raises _Refused."""
    body = bytearray()
    while True:
        try:
            async with asyncio.timeout(IDLE.total_seconds()):
                message = await receive()
        except TimeoutError as over:
            raise _Refused(HTTPStatus.REQUEST_TIMEOUT) from over
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > BODY_BYTES_MAX:
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if not message.get("more_body", False):
            return bytes(body)


async def _send(send: Any, status: int, *, is_last: bool = False) -> None:
    headers: list[tuple[bytes, bytes]] = []
    if status not in BODILESS:
        headers.append((b"content-length", b"0"))
    if is_last:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body"})


def _joined(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return headers by name; repeated ones are joined with commas, as HTTP defines."""
    joined: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined


def _path(scope: Message) -> str:
    """Return path and query as they were sent."""
    path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path


def _config(app: _Receiver) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="h11",  # Unlike httptools, it limits the size of a head.
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        ws="none",
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_config=None,
        log_level="critical",  # The output is for requests; a bad client is no event.
        server_header=False,
        date_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_keep_alive=round(IDLE.total_seconds()),
        timeout_graceful_shutdown=round(SHUTDOWN_GRACE.total_seconds()),
    )


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(place[:2], family=family, backlog=BACKLOG)
    except (socket.gaierror, UnicodeError) as unknown:
        raise InvalidInput("--host", f"{host!r} is not an address") from unknown
    except OSError as refused:
        reason = (refused.strerror or str(refused)).partition(" (while")[0]
        raise InvalidInput("--port", f"cannot listen on {host}:{port}: {reason}") from refused


def _url(listener: socket.socket) -> str:
    """Return the URL for senders on this machine."""
    host, port = listener.getsockname()[:2]
    address = ip_address(host)
    if address.is_unspecified:
        address = ip_address("127.0.0.1" if address.version == 4 else "::1")
    return f"http://[{address}]:{port}/" if address.version == 6 else f"http://{address}:{port}/"
