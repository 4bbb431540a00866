"""Responses to what never becomes a request, such as a head that is too large.

They are made without an ASGI scope: there is no route and no caller. The connection ends with them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from penstock.web.fast_path import STATUS_LINES
from penstock.web.problem import MEDIA_TYPE, problem_body
from penstock.web.request_wrapper import SECURITY_HEADER_LINES, new_id


@dataclass(frozen=True, slots=True)
class RequestRefusal:
    """One way to refuse; `code` is the type of its problem+json."""

    status: int
    code: str
    detail: str
    retry_after: timedelta | None = None

    def response(self, default_headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """Return the whole response, with an id of its own."""
        request_id = new_id()
        body = problem_body(self.code, self.status, detail=self.detail, request_id=request_id)
        lines = [
            STATUS_LINES[self.status],
            *(b"%b: %b\r\n" % pair for pair in default_headers),
            b"x-request-id: %b\r\n" % request_id.encode(),
            SECURITY_HEADER_LINES,
            *self._retry_after_line(),
            b"content-type: %b\r\n" % MEDIA_TYPE.encode(),
            b"content-length: %d\r\n" % len(body),
            b"connection: close\r\n\r\n",
            body,
        ]
        return b"".join(lines)

    def _retry_after_line(self) -> Iterator[bytes]:
        if self.retry_after is not None:
            yield b"retry-after: %d\r\n" % self.retry_after.total_seconds()


MALFORMED = RequestRefusal(400, "bad-request", "this is not a valid HTTP request")
