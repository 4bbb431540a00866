"""Fast path past ASGI receive/send, for uvicorn only; every use of uvicorn's internals is here.

A complete body is taken without waiting, and a response leaves in one write instead of two
messages with every header checked. That was a seventh of a request. Streams, and requests under
another server, use plain ASGI. pyproject.toml caps uvicorn's version because of this module.
"""

import asyncio
from http import HTTPStatus
from typing import Any, cast

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

NAME = "penstock.fast_path"  # Among the extensions of an ASGI scope.


class FastPath:
    """The fast path of one request: does to its cycle what `receive` and `send` would do."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    def take_body(self) -> bytes | None:
        """Return the body if it is complete, else None; then `receive` gives all of it."""
        cycle = self._cycle
        if cycle.more_body or cycle.disconnected or cycle.waiting_for_100_continue:
            return None
        cycle.flow.resume_reading()
        cycle.message_event.clear()
        body, cycle.body = cycle.body, bytearray()
        return bytes(body)

    def send(self, status: int, header_lines: bytes, body: bytes) -> bool:
        """Send a response; return False, with nothing sent, if it must go by ASGI's `send`."""
        cycle = self._cycle
        # Only ASGI's `send` waits for a client that does not read its earlier responses.
        if cycle.disconnected or cycle.flow.write_paused:
            return False
        cycle.response_started = cycle.response_complete = True
        more = b"".join([b"%b: %b\r\n" % pair for pair in cycle.default_headers])
        if not cycle.keep_alive:
            more += b"connection: close\r\n"
        cycle.transport.write(b"%b%b%b\r\n%b" % (_STATUS_LINES[status], header_lines, more, body))
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()
        # The cycle holds the scope, which holds this object. One reference cycle per request cost
        # a tenth of its time in the garbage collector.
        del cast("dict[str, Any]", cycle.scope)["extensions"]
        return True


def fast_path(scope: Scope) -> FastPath | None:
    """Return the fast path of a request, or None under another server."""
    extensions: dict[str, FastPath] = scope.get("extensions", {})
    return extensions.get(NAME)


class FastProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol, which adds the fast path to each scope and joins writes."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Accept a connection."""
        super().connection_made(cast("asyncio.Transport", _CorkedTransport(transport)))

    def on_headers_complete(self) -> None:
        """Start a request."""
        super().on_headers_complete()
        cast("dict[str, Any]", self.scope)["extensions"] = {NAME: FastPath(self.cycle)}


class _CorkedTransport:
    """Joins all writes of one loop iteration into one system call: 15 % more requests."""

    __slots__ = ("_call_soon", "_held", "_transport", "is_closing")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.is_closing = transport.is_closing  # Called for every request.
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


_STATUS_LINES = {
    each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode() for each in HTTPStatus
}
