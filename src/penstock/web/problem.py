"""Every failure as problem+json (RFC 9457). The error's class decides the response."""

from dataclasses import fields, is_dataclass
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

from penstock.base.errors import PenstockError
from penstock.web.authenticate import challenge
from penstock.web.request_wrapper import Response, note_problem, request_id_of

TYPE_PREFIX = "urn:penstock:problem:"
MEDIA_TYPE = "application/problem+json"

# What HTTP itself refuses. Spelt out: Python's own phrases differ between versions.
CODES = {
    400: "bad-request",
    404: "not-found",
    405: "method-not-allowed",
    408: "body-too-slow",
    413: "body-too-large",
    415: "unsupported-media-type",
    500: "internal",
    503: "unavailable",
}


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong (RFC 9457); further members carry the data, such as `field`."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str


# What a caller reads of a failure whose details are for the log alone.
OPAQUE_DETAILS = {
    500: "something went wrong on the server; quote the request id",
    503: "a dependency is unavailable; try again later, with the same key",
}


def error_response(request: Request, error: PenstockError) -> Response:
    """Answer an error with what its class says: status, code, headers, and how much is shown."""
    headers: dict[str, str] = {}
    if error.status == 401:
        headers["WWW-Authenticate"] = challenge(request)
    if error.retry_after is not None:
        headers["Retry-After"] = str(round(error.retry_after.total_seconds()))
    if error.status < 500 or error.exposes == "details":
        note_problem(request, error.code)
        return _problem(
            request, error.code, error.status, detail=str(error), data=_data(error), headers=headers
        )
    code = error.code if error.exposes == "code" else CODES.get(error.status, CODES[500])
    note_problem(request, code, failure=error)
    detail = OPAQUE_DETAILS.get(error.status, OPAQUE_DETAILS[500])
    return _problem(request, code, error.status, detail=detail, headers=headers)


def http_response(request: Request, error: HTTPException) -> Response:
    """Answer what HTTP itself refuses: no such path, wrong method, body too large."""
    code = CODES.get(error.status_code, "http-error")
    note_problem(request, code)
    detail = error.detail
    if error.status_code == 404:
        detail = "there is nothing at this path"
    if error.status_code == 405:
        detail = f"this path does not take {request.method}"
    return _problem(
        request, code, error.status_code, detail=detail, headers=dict(error.headers or {})
    )


def bug_response(request: Request) -> Response:
    """Answer an unexpected exception; the log has its line under the same request id.

    The exception is raised again, and then uvicorn closes the connection.
    """
    headers = {"Connection": "close"}
    return _problem(request, CODES[500], 500, detail=OPAQUE_DETAILS[500], headers=headers)


def _problem(
    request: Request,
    code: str,
    status: int,
    *,
    detail: str,
    headers: dict[str, str],
    data: dict[str, Any] | None = None,
) -> Response:
    content = problem_body(
        code, status, detail=detail, request_id=request_id_of(request.scope), data=data
    )
    return Response(status=status, body=content, media_type=MEDIA_TYPE, headers=headers)


def problem_body(
    code: str, status: int, *, detail: str, request_id: str, data: dict[str, Any] | None = None
) -> bytes:
    """Return the document of a problem."""
    problem = {
        "type": TYPE_PREFIX + code,
        "title": code.replace("-", " ").capitalize(),
        "status": status,
        "detail": detail,
        "request_id": request_id,
        **(data or {}),
    }
    return msgspec.json.encode(problem, enc_hook=str)


def _data(error: PenstockError) -> dict[str, Any]:
    """Return the fields of an error: what it is about, for programs."""
    if not is_dataclass(error):
        return {}
    return {field.name: getattr(error, field.name) for field in fields(error)}
