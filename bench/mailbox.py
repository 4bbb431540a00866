"""An SMTP server that notes when each mail began to arrive; for few mails a second."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Final

from bench.smtp_sink import HOST

REPLIES: Final = {b"EHLO": b"250-mailbox\r\n250 PIPELINING\r\n", b"QUIT": b"221 Bye\r\n"}
OK: Final = b"250 OK\r\n"
LINE_BYTES_MAX: Final = 256 * 1024


@dataclass(slots=True)
class Mailbox:
    """What has arrived, by the clock of this process, in seconds."""

    port: int = 0
    instants: list[float] = field(default_factory=list)

    async def count(self) -> int:
        """Return how many mails have arrived."""
        return len(self.instants)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Talk to one client until it leaves."""
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            writer.write(b"220 mailbox ESMTP\r\n")
            while line := await reader.readline():
                verb = line[:4].upper()
                if verb == b"MAIL":
                    self.instants.append(time.monotonic())
                if verb == b"DATA":
                    writer.write(b"354 Go on\r\n")
                    await reader.readuntil(b"\r\n.\r\n")
                writer.write(REPLIES.get(verb, OK))
                if verb == b"QUIT":
                    return


@contextlib.asynccontextmanager
async def mailbox() -> AsyncGenerator[Mailbox]:
    """Serve on a free port of loopback."""
    box = Mailbox()
    server = await asyncio.start_server(box.serve, HOST, 0, limit=LINE_BYTES_MAX)
    async with server:
        box.port = server.sockets[0].getsockname()[1]
        yield box
