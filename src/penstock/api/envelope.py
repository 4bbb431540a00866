"""What surrounds every request: its id, harmless headers, and one line in the log."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import getrandbits
from time import perf_counter
from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from penstock.api.short_way import short_way
from penstock.base import log
from penstock.base.log import Logger, describe

# Sane in a header, in a log line and in a shell.
REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,100}")

HARMLESS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_HARMLESS = [(name.lower().encode(), value.encode()) for name, value in HARMLESS.items()]
_HARMLESS_LINES = b"".join(b"%b: %b\r\n" % pair for pair in _HARMLESS)


class Answer(Struct, frozen=True, kw_only=True):
    """What goes back; its headers win over those of the envelope."""

    status: int
    body: bytes | AsyncIterator[bytes] = b""
    media_type: str | None = None
    headers: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Envelope:
    """The ASGI app: `answer` says what to send, and `apologize` what, if it has raised."""

    answer: Callable[[Request], Awaitable[Answer]]
    apologize: Callable[[Request], Answer]
    log: Logger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; a failure is told to the caller and the log, and raised again."""
        assert scope["type"] == "http", "the server is told to do nothing else"
        request = Request(scope, receive)
        state = scope.setdefault("state", {})
        state["request_id"] = request_id = _request_id(request)
        line: dict[str, Any] = {"method": scope["method"], "route": "none", "status": 500}
        state["line"] = line
        started = perf_counter()
        known = log.request_id.set(request_id)
        try:
            answer = await self.answer(request)
            line["status"] = answer.status
            if not _send_shortly(answer, request_id, scope):
                await _send(answer, request_id, send)
        except Exception as failure:
            line.update(describe(failure))
            if line["status"] == 500:
                await _send(self.apologize(request), request_id, send)
            raise
        finally:
            line["duration_ms"] = round((perf_counter() - started) * 1000, 1)
            self._tell(line)
            log.request_id.reset(known)

    def _tell(self, line: dict[str, Any]) -> None:
        """Write the request's line: ours to repair, or one of many, or a probe's."""
        if line["status"] == 500:
            self.log.error("request.failed", **line)
        elif line["status"] > 500:
            self.log.warning("request.failed", **line)
        elif is_for_probes(line["route"]):
            self.log.debug("request.answered", **line)
        else:
            self.log.info("request.answered", **line)


def is_for_probes(path: str) -> bool:
    """Say whether a path is there for probes and scrapes, which come all the time."""
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
    """Put what went wrong into the request's line; of the caller's mistakes, only the code."""
    line = request.scope["state"]["line"]
    line["code"] = code
    if failure is not None:
        line.update(describe(failure))


def header(request: Request, name: bytes) -> str:
    """Return a header, or nothing. Starlette's mapping would decode all names on the way to it."""
    for each, value in request.scope["headers"]:
        if each == name:
            return str(value.decode("latin-1"))
    return ""


def _send_shortly(answer: Answer, request_id: str, scope: Scope) -> bool:
    """Send a usual answer if the server has a short way for it; say whether it is sent."""
    short = short_way(scope)
    if short is None or answer.headers or answer.media_type is None or scope["method"] == "HEAD":
        return False
    if not isinstance(answer.body, bytes):
        return False
    lines = b"x-request-id: %b\r\n%bcontent-type: %b\r\ncontent-length: %d\r\n" % (
        request_id.encode(),
        _HARMLESS_LINES,
        _content_type(answer.media_type),
        len(answer.body),
    )
    return short.answer(answer.status, lines, answer.body)


async def _send(answer: Answer, request_id: str, send: Send) -> None:
    headers = [(b"x-request-id", request_id.encode()), *_HARMLESS]
    if answer.headers:
        own = {name.lower().encode(): value for name, value in answer.headers.items()}
        headers = [pair for pair in headers if pair[0] not in own]
        headers += [(name, value.encode("latin-1")) for name, value in own.items()]
    if answer.media_type is not None:
        headers.append((b"content-type", _content_type(answer.media_type)))
    body = answer.body
    if isinstance(body, bytes):
        if answer.status not in (204, 304):
            headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        return
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    async for chunk in body:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _content_type(media_type: str) -> bytes:
    is_bare_text = media_type.startswith("text/") and "charset" not in media_type
    return f"{media_type}; charset=utf-8".encode() if is_bare_text else media_type.encode()


def _request_id(request: Request) -> str:
    """Return the caller's id for the request if it is sane, else one of our own."""
    given = header(request, b"x-request-id")
    return given if REQUEST_ID.fullmatch(given) else _new_id()


def _new_id() -> str:
    return f"{getrandbits(128):032x}"  # Not a secret, and without a call of the system.
