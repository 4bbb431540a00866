"""One connection: a request at a time, and its response. Others open it and decide who uses it."""

import asyncio
from collections.abc import Callable
from math import inf
from time import perf_counter
from typing import cast

from penstock.base.errors import CallFailed
from penstock.integrations.http_client.failure import failure
from penstock.integrations.http_client.reader import Malformed, Reader
from penstock.integrations.http_client.response import Response


class Stale(Exception):
    """A kept connection ended before the first byte of a response: it may just have been old."""


class Connection(asyncio.Protocol):
    """Calls `on_idle` whenever it is ready for the next request, and `on_over` once, at its end.

    Whoever looks after it calls `expire` when the loop's time is `until`: for the request under
    way, or for a connection that nobody uses.
    """

    __slots__ = (
        "_answer",
        "_is_reused",
        "_loop",
        "_on_idle",
        "_on_over",
        "_reader",
        "_started",
        "_transport",
        "ended",
        "expires_at",
        "is_over",
        "origin",
        "until",
    )

    def __init__(
        self,
        origin: str,
        reader: Reader,
        *,
        expires_at: float,
        on_idle: Callable[["Connection"], None],
        on_over: Callable[["Connection"], None],
    ) -> None:
        self.origin = origin
        self.expires_at = expires_at
        self.until = inf
        self.ended: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._reader = reader
        self._on_idle = on_idle
        self._on_over = on_over
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Response] | None = None
        self._started = 0.0
        self._is_reused = False
        self.is_over = False

    async def ask(self, request: bytes, *, until: float, started: float) -> Response:
        """Send a request and return the response; `started` is when its duration began.

        Raises CallFailed, or Stale if there is reason to try again. A caller who is cancelled
        takes the connection along: what comes back on it would be taken for the next answer.
        """
        if self.is_over or self._transport is None:
            raise failure("closed", "the connection was closed before the request")
        answer: asyncio.Future[Response] = self._loop.create_future()
        self._answer = answer
        self._started = started
        self.until = until
        self._reader.begin()
        self._transport.write(request)
        try:
            return await answer
        finally:
            # If it is another's by now, ours has been answered and the connection is sound.
            if self._answer is answer:
                self.drop()

    def expire(self) -> None:
        """End the connection because the time is over."""
        if self._answer is None:
            self.drop()
        elif self._reader.received_bytes:
            self._fail(failure("timeout", "the response was not complete in time"))
        else:
            self._fail(failure("timeout", "there was no response in time"))

    def drop(self) -> None:
        """End the connection at once, without a word. A repeat is harmless."""
        if self.is_over:
            return
        self.is_over = True
        self._on_over(self)
        if self._transport is not None:
            self._transport.abort()
        if self._answer is not None:
            self._fail(failure("closed", "the connection was given up"))

    def secured(self, transport: asyncio.Transport) -> None:
        """Go on over TLS."""
        self._transport = transport
        if self.is_over:
            transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, as asyncio tells."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass of it.
        self.ended = self._loop.create_future()
        if self.is_over:
            # It was given up while it was being opened.
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read on, as asyncio tells."""
        if self._answer is None:
            # Nobody has asked. The next response would be somebody else's.
            self.drop()
            return
        try:
            is_complete = self._reader.feed(data)
        except Malformed as flaw:
            self._fail(failure("malformed", str(flaw)))
            return
        if is_complete:
            self._finish(self._answer)

    def eof_received(self) -> None:
        """End with what there is, as asyncio tells."""
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        """End, as asyncio tells."""
        self._end(is_broken=exc is not None)
        if self.ended is not None and not self.ended.done():
            self.ended.set_result(None)

    def _end(self, *, is_broken: bool = False) -> None:
        answer = self._answer
        if answer is None:
            self.drop()
        elif not is_broken and self._reader.end():
            self._finish(answer)
        elif self._is_reused and not self._reader.received_bytes:
            self._fail(Stale())
        else:
            self._fail(failure("closed", "the connection ended before a full response"))

    def _finish(self, answer: "asyncio.Future[Response]") -> None:
        assert self._transport is not None
        self._answer = None
        response = self._reader.response(perf_counter() - self._started)
        # An answer may come before the request is sent, and then the rest of it is still to go.
        if self._reader.is_reusable and not self._transport.get_write_buffer_size():
            self._is_reused = True
            self._on_idle(self)
        else:
            self.drop()
        if not answer.done():
            answer.set_result(response)

    def _fail(self, why: CallFailed | Stale) -> None:
        answer, self._answer = self._answer, None
        self.drop()
        if answer is not None and not answer.done():
            answer.set_exception(why)
