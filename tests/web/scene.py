"""The real server in this process, and raw bytes to it."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from penstock import Penstock
from penstock.api import create_app
from penstock.base.aio import spawn
from penstock.web import serve
from penstock.web.protocol import Timeouts

LIVE = b"GET /health/live HTTP/1.1\r\nHost: x\r\nX-Request-Id: %d\r\n\r\n"
LAST = b"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@asynccontextmanager
async def served(
    app: Penstock, stop: asyncio.Event, *, timeouts: Timeouts | None = None
) -> AsyncGenerator[str]:
    """Serve on a free port while the body runs, and yield the URL."""
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as group:
        spawn(
            group,
            serve(
                create_app(app),
                host="127.0.0.1",
                port=0,
                stop=stop,
                on_listening=listening.set_result,
                timeouts=timeouts,
            ),
        )
        try:
            yield await listening
        finally:
            stop.set()


async def say(url: str, *requests: bytes) -> bytes:
    """Send pipelined requests, then return all that the server answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    try:
        for request in requests:
            writer.write(request)
        await writer.drain()
        async with asyncio.timeout(60):
            return await reader.read()
    finally:
        writer.close()


FLOOD_BYTES_MAX = 64 * 1024 * 1024


async def flood(url: str, start: bytes, more: bytes) -> tuple[bytes, int]:
    """Send `more` again and again until the server ends the connection.

    Returns what the server has answered, and how many bytes it took until it ended. A thread with
    a plain socket: streams drop what they have received when a write fails.
    """
    return await asyncio.to_thread(_flood, int(url.rpartition(":")[2]), start, more)


def _flood(port: int, start: bytes, more: bytes) -> tuple[bytes, int]:
    sent_bytes = len(start)
    parts: list[bytes] = []
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        with suppress(ConnectionError):
            client.sendall(start)
            while sent_bytes < FLOOD_BYTES_MAX:
                client.sendall(more)
                sent_bytes += len(more)
        with suppress(ConnectionError):
            while part := client.recv(65_536):
                parts.append(part)
    return b"".join(parts), sent_bytes
