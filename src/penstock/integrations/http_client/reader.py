"""Read one response after another from the bytes of a connection. Touches no network."""

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from penstock.integrations.http_client.limits import Limits
from penstock.integrations.http_client.response import Response

# Around a body of many chunks; more than that is a way to keep us busy.
WIRE_BYTES_PER_BODY_BYTE = 2


class Malformed(Exception):
    """These bytes are no response that we take."""


class Reader:
    """Takes bytes as they come, from `begin` until the response is complete.

    The methods `on_…` belong to the parser. It reads on behind the end of a response, so each of
    them has to know whether it is still about ours.
    """

    __slots__ = (
        "_body",
        "_body_bytes",
        "_body_bytes_max",
        "_flaw",
        "_head_bytes_max",
        "_headers",
        "_is_complete",
        "_is_truncated",
        "_parser",
        "_status",
        "_wire_bytes_max",
        "is_reusable",
        "received_bytes",
    )

    def __init__(self, limits: Limits) -> None:
        self._head_bytes_max = limits.head_bytes_max
        self._body_bytes_max = limits.body_bytes_max
        self._wire_bytes_max = (
            limits.head_bytes_max + WIRE_BYTES_PER_BODY_BYTE * limits.body_bytes_max
        )
        self._parser = HttpResponseParser(self)
        self.begin()

    def begin(self) -> None:
        """Expect a new response."""
        self._status = 0  # Until the head of a final response is complete.
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._is_complete = False
        self._is_truncated = False
        self._flaw: str | None = None
        self.received_bytes = 0
        self.is_reusable = False

    def feed(self, data: bytes) -> bool:
        """Take bytes and tell whether the response is complete. Raises Malformed."""
        self.received_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as refused:
            # Behind a complete response it is only a reason not to go on with the connection.
            if not self._is_complete:
                raise Malformed(self._flaw or f"this is not HTTP: {refused}") from refused
            self.is_reusable = False
        if self._flaw is not None:
            raise Malformed(self._flaw)
        if not self._is_complete and self.received_bytes > self._head_bytes_max:
            self._check_size()
        return self._is_complete

    def end(self) -> bool:
        """The connection has ended: tell whether that is how this response was to end."""
        if self._status and not self._is_complete and not self._has_length():
            self._is_complete = True
        return self._is_complete

    def response(self, duration_seconds: float) -> Response:
        """Return the response that is complete."""
        assert self._is_complete
        body = self._body
        return Response(
            status=self._status,
            body=body[0] if len(body) == 1 else b"".join(body),
            is_truncated=self._is_truncated,
            duration_seconds=duration_seconds,
            raw_headers=self._headers,
        )

    def on_message_begin(self) -> None:
        """Notice that more follows than was asked for: whose answer that is, nobody can tell."""
        if self._is_complete:
            self.is_reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; trailers come here too and are not kept."""
        if not self._status:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Take the status of a final response; forget those that only tell to wait."""
        if self._status:
            return
        status = self._parser.get_status_code()
        if self.received_bytes > self._head_bytes_max:
            self._check_head()
        if status >= 200:
            self._status = status
        elif 100 <= status != 101:
            self._headers.clear()
        else:
            self._flaw = f"status {status} is no answer"

    def on_body(self, data: bytes) -> None:
        """Keep what fits."""
        if self._is_complete:
            return
        self._body.append(data)
        self._body_bytes += len(data)
        if self._body_bytes > self._body_bytes_max:
            self._body = [b"".join(self._body)[: self._body_bytes_max]]
            self._truncate()

    def on_message_complete(self) -> None:
        """Notice the end of a final response."""
        if self._status and not self._is_complete:
            self._is_complete = True
            # The parser forgets this as soon as we return.
            self.is_reusable = self._parser.should_keep_alive()

    def _check_head(self) -> None:
        """Count exactly: what has come may be a short head and a long body."""
        if sum(len(name) + len(value) for name, value in self._headers) > self._head_bytes_max:
            self._flaw = f"its headers have more than {self._head_bytes_max} bytes"

    def _check_size(self) -> None:
        if not self._status:
            raise Malformed(f"its headers have more than {self._head_bytes_max} bytes")
        if self.received_bytes > self._wire_bytes_max:
            self._truncate()

    def _truncate(self) -> None:
        self._is_complete = True
        self._is_truncated = True

    def _has_length(self) -> bool:
        for name, value in self._headers:
            match name.lower():
                case b"content-length":
                    return True
                case b"transfer-encoding":
                    return value.lower().endswith(b"chunked")
                case _:
                    pass
        return False
