"""Serve the API over HTTP until told to stop. Signals belong to who called, not to the server."""

import asyncio
import logging
import socket
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from penstock.api.envelope import Envelope
from penstock.api.short_way import NAME
from penstock.api.site import create_app
from penstock.app import Penstock
from penstock.base.aio import alongside
from penstock.base.errors import BadSetting
from penstock.base.settings import settings

BACKLOG = 2048  # A burst of new connections waits in the kernel instead of being refused.

# It prints a traceback for each failure that the envelope has told in one line.
logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)


async def serve(
    penstock: Penstock,
    *,
    host: str,
    port: int,
    stop: asyncio.Event,
    on_listening: Callable[[str], None],
    is_probe: bool = False,
) -> None:
    """Serve until `stop` is set, then finish the requests under way and return.

    Port 0 means any free one; `on_listening` gets the URL once connections are accepted. Raises
    BadSetting if the address cannot be had. A probe is health and metrics alone.
    """
    listener = _listen(host, port)
    server = uvicorn.Server(_config(create_app(penstock, is_probe=is_probe)))
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup(sockets=[listener])
    url = _url(listener)
    try:
        penstock.log.info("server.started", url=url)
        on_listening(url)
        async with alongside(server.main_loop()):
            await stop.wait()
    finally:
        await server.shutdown(sockets=[listener])
        penstock.log.info("server.stopped", url=url)


class _Protocol(HttpToolsProtocol):
    """uvicorn's own, with a short way for usual calls."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(cast("asyncio.Transport", _Corked(transport)))

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        cast("dict[str, Any]", self.scope)["extensions"] = {NAME: _ShortWay(self.cycle)}


class _ShortWay:
    """As `short_way.ShortWay` promises: does to one cycle what `receive` and `send` would do."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    def take_body(self) -> bytes | None:
        cycle = self._cycle
        if cycle.more_body or cycle.disconnected or cycle.waiting_for_100_continue:
            return None
        cycle.flow.resume_reading()
        cycle.message_event.clear()
        body, cycle.body = cycle.body, bytearray()
        return bytes(body)

    def answer(self, status: int, lines: bytes, body: bytes) -> bool:
        # A client that does not read what it got before is to be waited for.
        cycle = self._cycle
        if cycle.disconnected or cycle.flow.write_paused:
            return False
        cycle.response_started = cycle.response_complete = True
        more = b"".join([b"%b: %b\r\n" % pair for pair in cycle.default_headers])
        if not cycle.keep_alive:
            more += b"connection: close\r\n"
        cycle.transport.write(b"%b%b%b\r\n%b" % (_STATUS_LINES[status], lines, more, body))
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()
        # The cycle holds the scope, which holds this. A circle for each call cost a tenth of all.
        del cast("dict[str, Any]", cycle.scope)["extensions"]
        return True


_STATUS_LINES = {
    each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode() for each in HTTPStatus
}


class _Corked:
    """What is written in one turn of the loop leaves in one system call; 15 % more requests."""

    __slots__ = ("_call_soon", "_held", "_transport", "is_closing")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.is_closing = transport.is_closing  # Asked for with every call.
        self._call_soon = asyncio.get_running_loop().call_soon
        self._held: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._held:
            self._call_soon(self._flush)
        self._held.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._held:
            held, self._held = self._held, []
            self._transport.write(b"".join(held))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def _config(app: Envelope) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=max(1, round(settings().shutdown_grace.total_seconds())),
    )


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError) as unknown:
        raise BadSetting("PENSTOCK_HOST", f"{host!r} is no address") from unknown
    try:
        listener = socket.create_server(place[:2], family=family, backlog=BACKLOG)
    except OSError as refused:
        reason = (refused.strerror or str(refused)).partition(" (while")[0]
        raise BadSetting("PENSTOCK_PORT", f"cannot listen on {host}:{port}: {reason}") from refused
    listener.setblocking(False)  # noqa: FBT003  The socket module's own form.
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
