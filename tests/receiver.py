"""A real HTTP/1.1 server on loopback that writes down what it gets and misbehaves on order.

    async with receiving(answers=[503, Reply(200, b"ok"), Hang()]) as receiver:
        ... deliver to receiver.url ...
        await receiver.wait_for(3)
        assert receiver.requests[0].headers["webhook-id"] == "msg_1"

Answers are given in their order, and the last one again and again; a number is a bare status.
A function gets the request and returns the answer.
"""

import asyncio
import itertools
import socket
import ssl
import struct
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

PATIENCE = 10.0  # Seconds until a test that waits for something fails.
HEAD_BYTES_MAX = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A request. Names of headers are in lower case; `connection` counts from 1."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    head: bytes
    received_at: datetime
    connection: int


@dataclass(frozen=True, slots=True)
class Reply:
    """A sound answer; `after` makes it wait, and `is_last` ends the connection."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    after: asyncio.Event | None = None
    is_last: bool = False
    is_chunked: bool = False
    informational: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Early:
    """An answer that does not wait for the request's body; then the connection ends, or hangs."""

    status: int = 413
    is_last: bool = True


@dataclass(frozen=True, slots=True)
class Raw:
    """These bytes as they are, one write for each; then the connection ends, or stays silent."""

    writes: Sequence[bytes]
    is_last: bool = True


@dataclass(frozen=True, slots=True)
class Drip:
    """A body that comes byte by byte, with a pause before each."""

    body: bytes
    pause_seconds: float = 0.02


@dataclass(frozen=True, slots=True)
class Hang:
    """No answer at all, for as long as the other side waits."""


@dataclass(frozen=True, slots=True)
class Close:
    """The request is read and the connection ended, with a close or with a reset."""

    is_reset: bool = False


Answer = Reply | Early | Raw | Drip | Hang | Close
Script = Sequence[Answer | int] | Callable[[Received], Answer | int]


class Receiver:
    """What the server has seen so far, and where it is."""

    def __init__(self, script: Script, *, is_tls: bool) -> None:
        self.requests: list[Received] = []
        self.names: list[str | None] = []  # What clients of TLS asked for by SNI.
        self.opened_count = 0
        self.closed_count = 0
        self.host = ""
        self.port = 0
        self._script = script
        self._scheme = "https" if is_tls else "http"
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: list[Exception] = []
        self._changed = asyncio.Event()
        self._numbers = itertools.count(1)

    @property
    def url(self) -> str:
        """Where to deliver to."""
        return self.url_of(self.host)

    def url_of(self, host: str, path: str = "/hook") -> str:
        """Return the URL under another name of this host."""
        return f"{self._scheme}://{host}:{self.port}{path}"

    async def wait_for(self, count: int) -> Sequence[Received]:
        """Wait until so many requests have come whole, and return all that there are."""
        await self.until(lambda: len(self.requests) >= count)
        return self.requests

    async def until(self, is_reached: Callable[[], bool]) -> None:
        """Wait until something is true that only changes here."""
        async with asyncio.timeout(PATIENCE):
            while not is_reached():
                self._changed.clear()
                await self._changed.wait()

    def hang_up(self) -> None:
        """Close all connections, as a server does that is restarted."""
        for writer in self._writers:
            writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection until it ends."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        self.opened_count += 1
        try:
            while await self._exchange(reader, writer, self.opened_count):
                pass
        except (asyncio.CancelledError, asyncio.IncompleteReadError, OSError):
            pass  # The other side left, or the test is over.
        except Exception as failure:  # noqa: BLE001  The test must see it.
            self._failures.append(failure)
        finally:
            writer.close()
            self._writers.discard(writer)
            self._tasks.discard(task)
            self.closed_count += 1
            self._changed.set()

    async def stop(self) -> None:
        """End what is still open, and raise what went wrong in a script."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._failures:
            raise self._failures[0]

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int
    ) -> bool:
        """Read a request and answer it; return whether the connection goes on."""
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ")
        pairs = [line.split(":", 1) for line in lines if line]
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        number = next(self._numbers)
        is_early = isinstance(self._scripted(number), Early)
        received = Received(
            method=method,
            path=path,
            headers=headers,
            body=b"" if is_early else await _read_body(reader, headers),
            head=head,
            received_at=datetime.now(UTC),
            connection=connection,
        )
        self.requests.append(received)
        self._changed.set()
        answer = self._scripted(number)
        if answer is None:
            assert callable(self._script)
            answer = self._script(received)
        answer = Reply(answer) if isinstance(answer, int) else answer
        return await _answer(answer, reader, writer)

    def _scripted(self, number: int) -> Answer | int | None:
        """Return the answer to the request of this number, unless it depends on the request."""
        if callable(self._script):
            return None
        return self._script[min(number, len(self._script)) - 1]


@asynccontextmanager
async def receiving(
    *,
    answers: Script = (200,),
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
) -> AsyncGenerator[Receiver]:
    """Run a receiver on a free port, or on `port`, while the body runs."""
    receiver = Receiver(answers, is_tls=tls is not None)
    if tls is not None:
        tls.sni_callback = lambda _socket, name, _context: receiver.names.append(name)
    server = await asyncio.start_server(
        receiver.serve, host, port, ssl=tls, limit=HEAD_BYTES_MAX, family=_family(host)
    )
    receiver.host = f"[{host}]" if ":" in host else host
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        await receiver.stop()
        await server.wait_closed()


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding") != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    body = b""
    while size := int(await reader.readline(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
    return body


async def _answer(
    answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """Do what the script says; return whether the connection goes on."""
    match answer:
        case Reply():
            await _reply(answer, writer)
            return not answer.is_last
        case Early():
            await _reply(Reply(answer.status, is_last=answer.is_last), writer)
            if not answer.is_last:
                await reader.read()
            return False
        case Raw():
            for data in answer.writes:
                writer.write(data)
                await writer.drain()
            if not answer.is_last:
                await reader.read()
            return False
        case Drip():
            await _drip(answer, writer)
            return True
        case Hang():
            await reader.read()  # Returns when the other side has left.
            return False
        case Close():
            if answer.is_reset:
                _reset(writer)
            return False


async def _reply(reply: Reply, writer: asyncio.StreamWriter) -> None:
    if reply.after is not None:
        await reply.after.wait()
    for status in reply.informational:
        writer.write(b"HTTP/1.1 %d Wait\r\nLink: </style.css>\r\n\r\n" % status)
    headers = dict(reply.headers)
    if reply.is_last:
        headers["Connection"] = "close"
    if reply.is_chunked:
        headers["Transfer-Encoding"] = "chunked"
    elif reply.status not in (204, 304):
        headers["Content-Length"] = str(len(reply.body))
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {reply.status} Scripted\r\n{lines}\r\n".encode("latin-1")
    writer.write(head + (_chunks(reply.body) if reply.is_chunked else reply.body))
    await writer.drain()


def _chunks(body: bytes) -> bytes:
    """Write a body as two chunks, the last one and a trailer."""
    half = len(body) // 2
    parts = [part for part in (body[:half], body[half:]) if part]
    chunks = b"".join(b"%x;note=1\r\n%b\r\n" % (len(part), part) for part in parts)
    return chunks + b"0\r\nX-Checksum: none\r\n\r\n"


async def _drip(drip: Drip, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(drip.body))
    for byte in drip.body:
        with suppress(TimeoutError):
            async with asyncio.timeout(drip.pause_seconds):
                await asyncio.Event().wait()
        writer.write(bytes([byte]))
        await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Make the kernel answer with RST instead of a proper end."""
    connected = writer.get_extra_info("socket")
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
