"""HTTP/1.1 of one connection: uvicorn's protocol with limits on what a client may send, and when.

The head, the trailers and what follows a response are bounded as they arrive: uvicorn's parser
joins the parts of a header, which costs quadratic time. uvicorn's internals are used here, in
`fast_path` and in `server`; pyproject.toml names all users, and caps its version.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, NoReturn, cast

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from penstock.web.fast_path import NAME, CorkedTransport, FastPath
from penstock.web.metrics import EXPIRED, REFUSED
from penstock.web.refusal import MALFORMED, RequestRefusal
from penstock.web.request_wrapper import RequestWrapper

# Browsers and proxies send 8 KiB at most, with large cookies. A head that never ends is refused at
# the latest one slice later.
HEAD_BYTES_MAX = 64 * 1024
HEADERS_MAX = 100  # As Apache and Django; a proxy adds a handful.
URL_BYTES_MAX = 16 * 1024  # Twice what nginx takes; the longest name here has 255 characters.
# Input is parsed in slices, so that a limit is checked before much more has been parsed.
SLICE_BYTES = 16 * 1024
# What is read after a response and dropped, so that a client which is still sending gets it.
UNREAD_BYTES_MAX = 1024 * 1024

_NEVER = float("inf")

_CHECKED_HEADERS = frozenset({b"authorization", b"expect", b"host", b"transfer-encoding"})

HEAD_TOO_LARGE = RequestRefusal(
    431, "headers-too-large", f"the headers or the trailers are over {HEAD_BYTES_MAX} bytes"
)
TOO_MANY_HEADERS = RequestRefusal(
    431, "headers-too-large", f"the request has more than {HEADERS_MAX} headers"
)
URL_TOO_LONG = RequestRefusal(414, "url-too-long", f"the URL is over {URL_BYTES_MAX} bytes")

HEAD_TOO_SLOW = RequestRefusal(408, "head-too-slow", "the head of the request arrived too slowly")
TWO_KEYS = RequestRefusal(400, "bad-request", "the request has more than one Authorization header")
WRONG_CODING = RequestRefusal(
    400, "bad-request", "the only Transfer-Encoding that is accepted is chunked"
)
WRONG_HOST = RequestRefusal(400, "bad-request", "the request needs exactly one Host header")

# What a connection waits for. While a handler runs ("response") its own timeouts apply.
Phase = Literal["first_byte", "head", "response", "unread", "unsent", "idle", "close"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long a connection may wait for each thing; the body has BODY_TIMEOUT in `decode`."""

    first_byte: timedelta = timedelta(seconds=10)  # Clients connect when they have a request.
    head: timedelta = timedelta(seconds=10)  # From its first byte; it is one packet, or a few.
    unread: timedelta = timedelta(seconds=5)  # The rest of a body whose response has been sent.
    unsent: timedelta = timedelta(seconds=30)  # A client that reads nothing of its response.
    idle: timedelta = timedelta(seconds=5)  # As uvicorn and Apache have it.
    close: timedelta = timedelta(seconds=2)  # For a client that is still sending to read why.


class Protocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits and the fast path.

    `_part` is the part of a message that the parser expects next; None means a new message.
    The server calls `expire` once the loop's time has reached `deadline_at`.
    """

    def __init__(self, *, timeouts: Timeouts, **given: Any) -> None:
        super().__init__(**given)
        self.deadline_at = _NEVER
        self._timeouts = timeouts
        self._phase: Phase = "first_byte"
        self._part: Literal["head", "body"] | None = None
        self._unparsed_bytes = 0  # Of a head or of trailers, before this slice.
        self._unread_bytes = 0
        self._host_count = 0
        self._has_key = False
        self._failure: RequestRefusal | None = None
        self._refusal: RequestRefusal | None = None  # Sent once earlier requests are answered.
        self._is_discarding = False
        self._may_linger = True

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Accept a connection."""
        corked = cast("asyncio.Transport", CorkedTransport(transport, self._lingers))
        super().connection_made(corked)
        self.flow = _Flow(corked, self.pipeline)
        self._wait("first_byte", self._timeouts.first_byte)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._may_linger = False
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close an idle connection; one with a request in progress closes after the response."""
        if self._is_answering():
            self.cycle.keep_alive = False
        else:
            self._end()

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived, or drop it if the connection is about to end."""
        if self._phase == "idle" or self._phase == "first_byte":  # noqa: PLR1714  A set is slower.
            self._wait("head", self._timeouts.head)
        if self._is_discarding:
            self._discard(len(data))
        elif len(data) <= SLICE_BYTES:
            self._parse(data)
        else:
            whole = memoryview(data)
            for start in range(0, len(data), SLICE_BYTES):
                if self._is_discarding:
                    self._discard(len(data) - start)
                    return
                self._parse(whole[start : start + SLICE_BYTES])

    def _parse(self, data: bytes | memoryview) -> None:
        self._unparsed_bytes += len(data)  # The callbacks below reset it.
        try:
            self.parser.feed_data(data)  # pyright: ignore[reportOptionalMemberAccess]  None when lost.
        except httptools.HttpParserError:
            self._refuse(self._failure or MALFORMED)
        except httptools.HttpParserUpgrade:
            pass  # Answered as a request without the upgrade, as HTTP allows.
        else:
            if self._unparsed_bytes > HEAD_BYTES_MAX:
                self._refuse(HEAD_TOO_LARGE)
            elif self._unread_bytes > UNREAD_BYTES_MAX:
                self._end()

    def on_message_begin(self) -> None:
        """Begin a head."""
        super().on_message_begin()
        self._part = "head"
        self._unparsed_bytes = self._host_count = 0
        self._has_key = False

    def on_url(self, url: bytes) -> None:
        """Add to the URL."""
        self.url += url
        if len(self.url) > URL_BYTES_MAX:
            self._fail(URL_TOO_LONG)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; trailers are dropped."""
        if self._part == "body":
            return  # What authorises a request must be checked before its body is read.
        name = name.lower()
        if name in _CHECKED_HEADERS:
            self._check_header(name, value)
        self.headers.append((name, value))
        if len(self.headers) > HEADERS_MAX:
            self._fail(TOO_MANY_HEADERS)

    def on_headers_complete(self) -> None:
        """Start a request."""
        if self._host_count != 1:
            self._check_host()
        if self._unparsed_bytes > HEAD_BYTES_MAX - SLICE_BYTES:
            self._check_head_bytes()
        super().on_headers_complete()
        cast("dict[str, Any]", self.scope)["extensions"] = {NAME: FastPath(self.cycle)}
        self._part = "body"
        self._unparsed_bytes = self._unread_bytes = 0
        if self._phase != "unsent":
            self._phase, self.deadline_at = "response", _NEVER

    def on_body(self, body: bytes) -> None:
        """Add to the body, or drop it if the response has been sent."""
        self._unparsed_bytes = 0
        cycle = self.cycle
        if cycle.response_complete:
            self._unread_bytes += len(body)
            return
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        """End the body."""
        self._part = None
        self._unparsed_bytes = 0
        self.cycle.more_body = False
        self.cycle.message_event.set()
        if self._phase == "unread":
            self._wait("idle", self._timeouts.idle)

    def on_response_complete(self) -> None:
        """Start the next request of the pipeline, or send a refusal whose turn it is."""
        if self.pipeline:
            super().on_response_complete()
        elif self._refusal is not None:
            self._send(self._refusal)
        elif not self._is_discarding:
            self.server_state.total_requests += 1
            self._wait_for_client()
        self.flow.resume_reading()

    def pause_writing(self) -> None:
        """Give the client some time to read."""
        super().pause_writing()
        self._wait("unsent", self._timeouts.unsent)

    def resume_writing(self) -> None:
        """Go on after the client has read."""
        super().resume_writing()
        self._wait_for_client()

    def expire(self) -> None:
        """End the connection, because its deadline has passed."""
        if self._phase == "head":
            self._refuse(HEAD_TOO_SLOW)
            return
        if self._phase == "idle":
            self.transport.close()  # The last response may still be on its way.
            return
        self._requests().meter.count(EXPIRED, phase=self._phase)
        self.transport.abort()

    def _wait(self, phase: Phase, timeout: timedelta) -> None:
        self._phase = phase
        self.deadline_at = self.loop.time() + timeout.total_seconds()

    def _wait_for_client(self) -> None:
        """Set the deadline of what the client has to do next, if anything."""
        if self._is_discarding:
            return
        if self.flow.write_paused:
            self._wait("unsent", self._timeouts.unsent)
        elif self._is_answering():
            self._phase, self.deadline_at = "response", _NEVER
        elif self._part == "head":
            self._wait("head", self._timeouts.head)
        elif self._part == "body":
            self._wait("unread", self._timeouts.unread)
        else:
            self._wait("idle", self._timeouts.idle)

    def _check_header(self, name: bytes, value: bytes) -> None:
        """Note a header on which the rest of the request depends, or refuse it."""
        if name == b"host":
            self._host_count += 1
        elif name == b"authorization":
            if self._has_key:
                self._fail(TWO_KEYS)
            self._has_key = True
        elif name == b"transfer-encoding":
            if value.strip().lower() != b"chunked":
                self._fail(WRONG_CODING)
        elif value.lower() == b"100-continue":
            self.expect_100_continue = True

    def _check_head_bytes(self) -> None:
        """Refuse headers that are over the limit; the first slice of a head is not counted."""
        # Between name and value are a colon and a space, and a line end follows.
        if sum(len(name) + len(value) + 4 for name, value in self.headers) > HEAD_BYTES_MAX:
            self._fail(HEAD_TOO_LARGE)

    def _check_host(self) -> None:
        """Refuse a request without a Host, which only HTTP/1.0 allows, or with several."""
        is_old = self.parser.get_http_version() == "1.0"  # pyright: ignore[reportOptionalMemberAccess]
        if self._host_count or not is_old:
            self._fail(WRONG_HOST)

    def _fail(self, refusal: RequestRefusal) -> NoReturn:
        """Stop the parser from inside one of its callbacks."""
        self._failure = refusal
        raise ValueError(refusal.code)

    def _refuse(self, refusal: RequestRefusal) -> None:
        """Answer with an error, after the responses to earlier requests, and close."""
        self._is_discarding = True
        if self._part == "body":
            if not self.pipeline:
                self._interrupt(refusal)
                return
            self.pipeline.popleft()  # It has not started: the refusal takes its place.
        if self._is_answering():
            self._refusal = refusal
            self.flow.pause_reading()
        else:
            self._send(refusal)

    def _interrupt(self, refusal: RequestRefusal) -> None:
        """End the request in progress, whose body cannot be parsed."""
        cycle = self.cycle
        if cycle.response_complete:
            self.transport.close()
        elif cycle.response_started:
            self.transport.abort()
        else:
            cycle.disconnected = True  # Its handler sees a client that has gone.
            cycle.message_event.set()
            self._send(refusal)

    def _is_answering(self) -> bool:
        return bool(self.cycle) and not self.cycle.response_complete

    def _send(self, refusal: RequestRefusal) -> None:
        app = self._requests()
        app.meter.count(REFUSED, code=refusal.code)
        app.log.info("request.refused", status=refusal.status, code=refusal.code)
        if not self.transport.is_closing():
            self.transport.write(refusal.response(self.server_state.default_headers))
            self.transport.close()

    def _requests(self) -> RequestWrapper:
        app = cast("object", self.app)
        assert isinstance(app, RequestWrapper), "uvicorn wraps it only if configured to"
        return app

    def _lingers(self) -> bool:
        """Return whether a close has to wait for the client, which may still be sending."""
        is_unread = self._part is not None or self._is_discarding
        self._is_discarding = True
        if not (is_unread and self._may_linger):
            self._wait("close", self._timeouts.unsent)
            return False
        self._wait("close", self._timeouts.close)
        self.pipeline.clear()
        self.flow.resume_reading()
        return True

    def _discard(self, count: int) -> None:
        self._unread_bytes += count
        if self._unread_bytes > UNREAD_BYTES_MAX:
            self._end()

    def _end(self) -> None:
        """Close without reading on; what is written is sent first."""
        self._may_linger = False
        self.transport.close()


class _Flow(FlowControl):
    """Reads on only when no request waits in the pipeline.

    Otherwise each response would let in another 256 kB with thousands of requests.
    """

    def __init__(self, transport: asyncio.Transport, pipeline: deque[Any]) -> None:
        super().__init__(transport)
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        if not self._pipeline:
            super().resume_reading()
