"""Serve an ASGI app over HTTP until the stop event is set. The caller handles signals."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Collection
from contextlib import closing
from datetime import timedelta
from functools import partial
from typing import cast

import uvicorn

from penstock.base.aio import alongside
from penstock.base.errors import BadSetting
from penstock.base.settings import settings
from penstock.web.accept import Acceptor, default_connections_max
from penstock.web.protocol import Protocol, Timeouts
from penstock.web.refusal import RequestRefusal
from penstock.web.request_wrapper import RequestWrapper

BACKLOG = 2048  # A burst of new connections waits in the operating system, and is not refused.
DEADLINES_CHECKED_EVERY = timedelta(seconds=1)  # One pass over all connections is 1 ms for 10,000.

FULL = RequestRefusal(
    503,
    "too-many-connections",
    "this process has as many connections as it may; try again later",
    retry_after=timedelta(seconds=5),
)

# It would print a traceback for each failure that the request wrapper has logged in one line.
logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)


async def serve(
    app: RequestWrapper,
    *,
    host: str,
    port: int,
    stop: asyncio.Event,
    on_listening: Callable[[str], None],
    prepare: Callable[[], Awaitable[object]] | None = None,
    timeouts: Timeouts | None = None,
) -> None:
    """Serve until `stop` is set, then finish the requests in progress and return.

    Port 0 means any free one; `on_listening` gets the URL once connections are accepted. `prepare`
    is awaited before: the port is taken, and connections wait. Raises BadSetting if the address
    cannot be used.
    """
    with closing(_listen(host, port)) as listener:
        if prepare is not None:
            await prepare()
        server = uvicorn.Server(_config(app))
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        await server.startup(sockets=[])  # Connections are accepted here.
        url = _url(listener)
        acceptor = _acceptor(app, server, listener, timeouts=timeouts or Timeouts())
        connections = cast("Collection[Protocol]", server.server_state.connections)
        deadlines = _enforce_deadlines(connections)
        try:
            async with alongside(server.main_loop(), acceptor.run(), deadlines):
                app.log.info("server.started", url=url)
                on_listening(url)
                await stop.wait()
        finally:
            await server.shutdown(sockets=[listener])
            app.log.info("server.stopped", url=url)


def _acceptor(
    app: RequestWrapper, server: uvicorn.Server, listener: socket.socket, *, timeouts: Timeouts
) -> Acceptor:
    state = server.server_state
    return Acceptor(
        listener=listener,
        open_protocol=partial(
            Protocol, config=server.config, server_state=state, app_state={}, timeouts=timeouts
        ),
        count_open=lambda: len(state.connections),
        connections_max=settings().api_connections_max or default_connections_max(),
        full_response=lambda: FULL.response(state.default_headers),
        log=app.log,
        meter=app.meter,
    )


async def _enforce_deadlines(connections: Collection[Protocol]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(DEADLINES_CHECKED_EVERY.total_seconds())
        now = loop.time()
        for connection in [each for each in connections if each.deadline_at <= now]:
            connection.expire()


def _config(app: RequestWrapper) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=Protocol,
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
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError) as unknown:
        raise BadSetting("PENSTOCK_HOST", f"{host!r} is not an address") from unknown
    try:
        listener = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as refused:
        reason = (refused.strerror or str(refused)).partition(" (while")[0]
        raise BadSetting("PENSTOCK_PORT", f"cannot listen on {host}:{port}: {reason}") from refused
    listener.setblocking(False)  # noqa: FBT003  The socket module's own form.
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
