"""What surrounds every request: its id, harmless headers, and one line in the log."""

import re
import uuid
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from penstock.base.log import Logger, describe

# Sane in a header, in a log line and in a shell.
REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,100}")

HARMLESS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class Envelope:
    """ASGI middleware around the whole app."""

    app: ASGIApp
    log: Logger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; a failure is told in the log and raised again, for Starlette."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state["request_id"] = request_id = _request_id(scope)
        line: dict[str, Any] = {"method": scope["method"], "route": "none", "status": 500}
        state["line"] = line
        headers = envelope_headers(request_id)

        async def send_enveloped(message: Message) -> None:
            if message["type"] == "http.response.start":
                line["status"] = message["status"]
                given = MutableHeaders(scope=message)
                for name, value in headers.items():
                    given.setdefault(name, value)
            await send(message)

        started = perf_counter()
        with bound_contextvars(request_id=request_id):
            try:
                await self.app(scope, receive, send_enveloped)
            except Exception as failure:
                line.update(describe(failure))
                raise
            finally:
                line["duration_ms"] = round((perf_counter() - started) * 1000, 1)
                self._tell(line)

    def _tell(self, line: dict[str, Any]) -> None:
        """Write the request's line: ours to repair, or one of many, or a probe's."""
        if line["status"] == 500:
            self.log.error("request.failed", **line)
        elif line["status"] > 500:
            self.log.warning("request.failed", **line)
        elif line["route"].startswith("/health") or line["route"].endswith("/metrics"):
            self.log.debug("request.answered", **line)
        else:
            self.log.info("request.answered", **line)


def envelope_headers(request_id: str) -> dict[str, str]:
    """Return the headers that every answer has, unless it sets its own."""
    return {"X-Request-Id": request_id, **HARMLESS}


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


def _request_id(scope: Scope) -> str:
    """Return the caller's id for the request if it is sane, else one of our own."""
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            given = value.decode("latin-1")
            return given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
    return uuid.uuid4().hex
