"""The real server in this process, and raw bytes to it."""

import asyncio
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

    Returns what the server has answered, and how many bytes it took until it ended.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    answer = asyncio.ensure_future(_read_to_end(reader))
    writer.write(start)
    sent_bytes = len(start)
    try:
        async with asyncio.timeout(60):
            while not writer.is_closing() and not answer.done() and sent_bytes < FLOOD_BYTES_MAX:
                writer.write(more)
                sent_bytes += len(more)
                await asyncio.sleep(0)  # The server runs in the same loop.
                await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()
    return await answer, sent_bytes


async def _read_to_end(reader: asyncio.StreamReader) -> bytes:
    parts: list[bytes] = []
    with suppress(ConnectionError):
        while part := await reader.read(65_536):
            parts.append(part)
    return b"".join(parts)
