"""Add an id, security headers and one log line to every request."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import getrandbits
from time import perf_counter
from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from penstock.base import log
from penstock.base.log import Logger, describe
from penstock.base.meter import Meter
from penstock.web.fast_path import fast_path

# Safe in a header, in a log line and in a shell.
REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,100}")

SECURITY_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_SECURITY_HEADERS = [
    (name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()
]
SECURITY_HEADER_LINES = b"".join(b"%b: %b\r\n" % pair for pair in _SECURITY_HEADERS)


class Response(Struct, frozen=True, kw_only=True):
    """A response to a request; its headers replace those that every response has."""

    status: int
    body: bytes | AsyncIterator[bytes] = b""
    media_type: str | None = None
    headers: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class RequestWrapper:
    """The ASGI app: `respond` makes the response, and `error_response` the one if it raises."""

    respond: Callable[[Request], Awaitable[Response]]
    error_response: Callable[[Request], Response]
    log: Logger
    meter: Meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; an unexpected failure is answered, logged, and raised again."""
        assert scope["type"] == "http", "the server is configured for HTTP alone"
        request = Request(scope, receive)
        state = scope.setdefault("state", {})
        state["request_id"] = request_id = _request_id(request)
        line: dict[str, Any] = {"method": scope["method"], "route": "none", "status": 500}
        state["line"] = line
        started = perf_counter()
        outer_id = log.request_id.set(request_id)
        try:
            response = await self.respond(request)
            line["status"] = response.status
            if not _send_fast(response, request_id, scope):
                await _send(response, request_id, send)
        except Exception as failure:
            line.update(describe(failure))
            if line["status"] == 500:
                await _send(self.error_response(request), request_id, send)
            raise
        finally:
            line["duration_ms"] = round((perf_counter() - started) * 1000, 1)
            self._write(line)
            log.request_id.reset(outer_id)

    def _write(self, line: dict[str, Any]) -> None:
        """Log the request's line: an error for a bug, a warning for a missing dependency."""
        if line["status"] == 500:
            self.log.error("request.failed", **line)
        elif line["status"] > 500:
            self.log.warning("request.failed", **line)
        elif is_for_probes(line["route"]):
            self.log.debug("request.answered", **line)
        else:
            self.log.info("request.answered", **line)


def is_for_probes(path: str) -> bool:
    """Return whether a path is for probes and scrapes, which come every few seconds."""
    return path.startswith("/health") or path.endswith("/metrics")


def request_id_of(scope: Scope) -> str:
    """Return the id of the request being handled."""
    return str(scope["state"]["request_id"])


def note_route(request: Request, route: str) -> None:
    """Put the route's pattern into the request's line: the path itself may hold a caller's data."""
    request.scope["state"]["line"]["route"] = route


def note_caller(request: Request, key_id: str) -> None:
    """Put the caller into the request's line."""
    request.scope["state"]["line"]["key_id"] = key_id


def note_problem(request: Request, code: str, *, failure: Exception | None = None) -> None:
    """Put an error into the request's line; of a caller's mistake, only the code."""
    line = request.scope["state"]["line"]
    line["code"] = code
    if failure is not None:
        line.update(describe(failure))


def header(request: Request, name: bytes) -> str:
    """Return a header, or "". Starlette's mapping would decode every name before it."""
    for each, value in request.scope["headers"]:
        if each == name:
            return str(value.decode("latin-1"))
    return ""


def _send_fast(response: Response, request_id: str, scope: Scope) -> bool:
    """Send a plain response by the server's fast path; return whether it was sent."""
    fast = fast_path(scope)
    if fast is None or response.headers or response.media_type is None or scope["method"] == "HEAD":
        return False
    if not isinstance(response.body, bytes):
        return False
    header_lines = b"x-request-id: %b\r\n%bcontent-type: %b\r\ncontent-length: %d\r\n" % (
        request_id.encode(),
        SECURITY_HEADER_LINES,
        _content_type(response.media_type),
        len(response.body),
    )
    return fast.send(response.status, header_lines, response.body)


async def _send(response: Response, request_id: str, send: Send) -> None:
    headers = [(b"x-request-id", request_id.encode()), *_SECURITY_HEADERS]
    if response.headers:
        own = {name.lower().encode(): value for name, value in response.headers.items()}
        headers = [pair for pair in headers if pair[0] not in own]
        headers += [(name, value.encode("latin-1")) for name, value in own.items()]
    if response.media_type is not None:
        headers.append((b"content-type", _content_type(response.media_type)))
    body = response.body
    if isinstance(body, bytes):
        if response.status not in (204, 304):
            headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        return
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    async for chunk in body:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _content_type(media_type: str) -> bytes:
    has_no_charset = media_type.startswith("text/") and "charset" not in media_type
    return f"{media_type}; charset=utf-8".encode() if has_no_charset else media_type.encode()


def _request_id(request: Request) -> str:
    """Return the caller's id for the request if it is safe, else a new one."""
    given = header(request, b"x-request-id")
    return given if REQUEST_ID.fullmatch(given) else new_id()


def new_id() -> str:
    """Return an id for a request."""
    return f"{getrandbits(128):032x}"  # Not a secret, and needs no system call.
