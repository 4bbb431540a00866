"""Parse responses from the bytes of a connection, one after another. Touches no network."""

from contextlib import suppress

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from msgspec import Struct

# Bytes received per byte of body. A response of tiny chunks or endless trailers has more.
WIRE_BYTES_PER_BODY_BYTE = 2


class Response(Struct, frozen=True, kw_only=True):
    """A complete response; if `is_truncated`, `body` is its beginning, up to the client's limit."""

    status: int
    body: bytes
    is_truncated: bool
    # From the call to the last byte, with waiting and connecting.
    duration_seconds: float
    raw_head: bytes  # As received, with what arrived together with its end.

    def header(self, name: str) -> str | None:
        """Return the first header of this name, in any case, or None.

        Headers are parsed here: most callers read none, and collecting them takes 1 µs.
        """
        wanted = name.lower().encode()
        for found, value in _parse_headers(self.raw_head):
            if found.lower() == wanted:
                return value.decode("latin-1")
        return None


class MalformedResponse(Exception):
    """The bytes are not a response that the client accepts."""


class ResponseParser:
    """Feed bytes as they arrive, from `begin` until the response is complete.

    The parser calls the methods `on_…`. It continues after the end of a response, so each of them
    checks whether the response is already complete.
    """

    __slots__ = (
        "_body",
        "_body_bytes",
        "_body_bytes_max",
        "_flaw",
        "_head",
        "_head_bytes_max",
        "_is_complete",
        "_is_truncated",
        "_parser",
        "_status",
        "_wire_bytes_max",
        "is_reusable",
        "received_bytes",
    )

    def __init__(self, *, head_bytes_max: int, body_bytes_max: int) -> None:
        self._head_bytes_max = head_bytes_max
        self._body_bytes_max = body_bytes_max
        self._wire_bytes_max = head_bytes_max + WIRE_BYTES_PER_BODY_BYTE * body_bytes_max
        self._parser = HttpResponseParser(self)
        self.begin()

    def begin(self) -> None:
        """Reset the state for the next response."""
        self._status = 0  # Until the head of a final response is complete.
        self._head = b""
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._is_complete = False
        self._is_truncated = False
        self._flaw: str | None = None
        self.received_bytes = 0
        self.is_reusable = False

    def feed(self, data: bytes) -> bool:
        """Parse bytes; return whether the response is complete. Raises MalformedResponse."""
        self.received_bytes += len(data)
        if not self._status:
            self._head += data
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as refused:
            # After a complete response, bad bytes only make the connection unusable.
            if not self._is_complete:
                raise MalformedResponse(
                    self._flaw or f"not an HTTP response: {refused}"
                ) from refused
            self.is_reusable = False
        if self._flaw is not None:
            raise MalformedResponse(self._flaw)
        if not self._is_complete and self.received_bytes > self._head_bytes_max:
            self._check_size()
        return self._is_complete

    def end(self) -> bool:
        """Handle the end of the connection; return whether it ends this response regularly."""
        if self._status and not self._is_complete and not self._has_length():
            self._is_complete = True
        return self._is_complete

    def response(self, duration_seconds: float) -> Response:
        """Return the complete response."""
        assert self._is_complete
        body = self._body
        return Response(
            status=self._status,
            body=body[0] if len(body) == 1 else b"".join(body),
            is_truncated=self._is_truncated,
            duration_seconds=duration_seconds,
            raw_head=self._head,
        )

    def on_message_begin(self) -> None:
        """Do not reuse a connection on which a second, unrequested response begins."""
        if self._is_complete:
            self.is_reusable = False

    def on_headers_complete(self) -> None:
        """Take the status of a final response, not of an informational one (1xx)."""
        if self._status:
            return
        status = self._parser.get_status_code()
        if status >= 200:
            self._status = status
            if self.received_bytes > self._head_bytes_max:
                self._check_head()
        elif status < 100 or status == 101:
            self._flaw = f"status {status} is not a final response"

    def on_body(self, data: bytes) -> None:
        """Keep the body up to the limit."""
        if self._is_complete:
            return
        self._body.append(data)
        self._body_bytes += len(data)
        if self._body_bytes > self._body_bytes_max:
            self._body = [b"".join(self._body)[: self._body_bytes_max]]
            self._truncate()

    def on_message_complete(self) -> None:
        """Mark a final response as complete."""
        if self._status and not self._is_complete:
            self._is_complete = True
            # The parser resets this as soon as the callback returns.
            self.is_reusable = self._parser.should_keep_alive()

    def _check_head(self) -> None:
        """Count the headers exactly: the bytes received may be a short head and a long body."""
        headers = _parse_headers(self._head)
        if sum(len(name) + len(value) for name, value in headers) > self._head_bytes_max:
            self._flaw = self._head_too_large()

    def _check_size(self) -> None:
        if not self._status:
            raise MalformedResponse(self._head_too_large())
        if self.received_bytes > self._wire_bytes_max:
            self._truncate()

    def _head_too_large(self) -> str:
        return f"the response headers are larger than {self._head_bytes_max} bytes"

    def _truncate(self) -> None:
        self._is_complete = True
        self._is_truncated = True

    def _has_length(self) -> bool:
        for name, value in _parse_headers(self._head):
            match name.lower():
                case b"content-length":
                    return True
                case b"transfer-encoding":
                    return value.lower().endswith(b"chunked")
                case _:
                    pass
        return False


class _HeaderParser:
    """Collect the headers of the final response."""

    def __init__(self) -> None:
        self.found: list[tuple[bytes, bytes]] = []
        self.parser = HttpResponseParser(self)
        self._is_complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; trailers arrive here too and are dropped."""
        if not self._is_complete:
            self.found.append((name, value))

    def on_headers_complete(self) -> None:
        """Drop the headers of an informational response (1xx)."""
        if self.parser.get_status_code() >= 200:
            self._is_complete = True
        elif not self._is_complete:
            self.found.clear()


def _parse_headers(head: bytes) -> list[tuple[bytes, bytes]]:
    """Return the headers of bytes that begin with a valid head."""
    collected = _HeaderParser()
    with suppress(HttpParserError, HttpParserUpgrade):  # From what follows the head.
        collected.parser.feed_data(head)
    return collected.found
