"""Serve an ASGI app over HTTP until the stop event is set. The caller handles signals."""

import asyncio
import logging
import socket
from collections.abc import Callable

import uvicorn

from penstock.base.aio import alongside
from penstock.base.errors import BadSetting
from penstock.base.settings import settings
from penstock.web.protocol import Protocol
from penstock.web.request_wrapper import RequestWrapper

BACKLOG = 2048  # A burst of new connections waits in the operating system, and is not refused.

# It would print a traceback for each failure that the request wrapper has logged in one line.
logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)


async def serve(
    app: RequestWrapper,
    *,
    host: str,
    port: int,
    stop: asyncio.Event,
    on_listening: Callable[[str], None],
) -> None:
    """Serve until `stop` is set, then finish the requests in progress and return.

    Port 0 means any free one; `on_listening` gets the URL once connections are accepted. Raises
    BadSetting if the address cannot be used.
    """
    listener = _listen(host, port)
    server = uvicorn.Server(_config(app))
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup(sockets=[listener])
    url = _url(listener)
    try:
        app.log.info("server.started", url=url)
        on_listening(url)
        async with alongside(server.main_loop()):
            await stop.wait()
    finally:
        await server.shutdown(sockets=[listener])
        app.log.info("server.stopped", url=url)


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
