"""An endpoint that writes down what arrives and when, in a process of its own.

`POST /…` is answered with 200 at once, `POST /slow…` in a while, `POST /silent…` never. `GET
/arrivals` tells all that was or will be answered, in its order, as pairs of the webhook's id and
seconds since 1970; `GET /count` tells how many ids.
"""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final, cast
from urllib.request import urlopen

import httptools
import uvloop

from bench.process import listening

READ_SECONDS_MAX: Final = 30.0
SLOW_SECONDS: Final = 0.5
OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

Arrivals = list[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Receiver:
    """A running receiver, as the bench sees it."""

    url: str

    async def arrivals(self) -> Arrivals:
        """Return the id and the instant of each request that gets an answer, in their order."""
        return [(id_, at) for id_, at in cast("Arrivals", await self._read("arrivals"))]

    async def count(self) -> int:
        """Return how many ids have arrived."""
        return cast("int", await self._read("count"))

    async def _read(self, what: str) -> object:
        def read() -> object:
            with urlopen(f"{self.url}{what}", timeout=READ_SECONDS_MAX) as answer:
                return json.load(answer)

        return await asyncio.to_thread(read)


@contextlib.asynccontextmanager
async def receiving() -> AsyncGenerator[Receiver]:
    """Run a receiver on a free port of loopback."""
    async with listening((sys.executable, "-m", "bench.receiver"), {}) as server:
        yield Receiver(f"http://{server.host}:{server.port}/")


class _Notes:
    """What has arrived at all connections together."""

    def __init__(self) -> None:
        self.arrivals: Arrivals = []
        self.ids: set[str] = set()

    def take(self, webhook_id: str) -> None:
        self.arrivals.append((webhook_id, time.time()))
        self.ids.add(webhook_id)

    def to_json(self, path: bytes) -> bytes:
        return json.dumps(self.arrivals if path == b"/arrivals" else len(self.ids)).encode()


class _Connection(asyncio.Protocol):
    def __init__(self, notes: _Notes) -> None:
        self._notes = notes
        self._path = b""
        self._webhook_id = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._path = url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"webhook-id":
            self._webhook_id = value.decode()

    def on_message_complete(self) -> None:
        if self._parser.get_method() == b"GET":
            body = self._notes.to_json(self._path)
            head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
            self._transport.write(head % len(body) + body)
            self._transport.close()
        elif not self._path.startswith(b"/silent"):
            self._notes.take(self._webhook_id)
            if self._path.startswith(b"/slow"):
                loop = asyncio.get_running_loop()
                loop.call_later(SLOW_SECONDS, self._transport.write, OK)
            else:
                self._transport.write(OK)


async def main() -> None:
    notes = _Notes()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(notes), "127.0.0.1", 0, backlog=4096)
    async with server:
        host, port = server.sockets[0].getsockname()[:2]
        print(f"receiving at http://{host}:{port}/", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
