"""Every failure as problem+json (RFC 9457). Only here an error becomes a status."""

from dataclasses import fields, is_dataclass
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

from penstock.api.auth import challenge
from penstock.api.envelope import Answer, note_problem, request_id_of
from penstock.base.errors import (
    Conflict,
    DatabaseAway,
    Forbidden,
    InvalidInput,
    NotFound,
    PenstockError,
    PoolExhausted,
    Unauthenticated,
    Unavailable,
)

TYPE_PREFIX = "urn:penstock:problem:"
MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 5  # A restart of PostgreSQL takes less; a failover is asked about again.

STATUSES: dict[type[PenstockError], int] = {
    InvalidInput: 400,
    Unauthenticated: 401,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    Unavailable: 503,
}

# What HTTP itself refuses. Spelt out: Python's own phrases differ from version to version.
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

# What a caller is told of trouble that is ours: its details are for the log.
OPAQUE = {
    500: "something went wrong on our side; quote the request id",
    503: "something we stand on is away; try again later, with the same key",
}


def status_of(error: type[PenstockError]) -> int:
    """Return the status of an error, which is that of its nearest listed ancestor, or 500."""
    for ancestor in error.__mro__:
        if ancestor in STATUSES:
            return STATUSES[ancestor]
    return 500


def tell_ours(request: Request, error: PenstockError) -> Answer:
    """Answer an error of our own tree with its code, message and data."""
    status = status_of(type(error))
    headers: dict[str, str] = {}
    if status == 401:
        headers["WWW-Authenticate"] = challenge(request)
    if status == 503:
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    # A pool that is full up to the end of all calendars is no trouble of ours.
    if status in OPAQUE and not isinstance(error, PoolExhausted):
        # A wrong setting of ours is a 500 of no further interest to the caller.
        code = error.code if isinstance(error, DatabaseAway) else CODES[status]
        note_problem(request, code, failure=error)
        return _response(request, code, status, detail=OPAQUE[status], headers=headers)
    note_problem(request, error.code)
    return _response(
        request, error.code, status, detail=str(error), data=_data(error), headers=headers
    )


def tell_http(request: Request, error: HTTPException) -> Answer:
    """Answer what HTTP itself refuses: no such path, wrong method, body too large."""
    code = CODES.get(error.status_code, "http-error")
    note_problem(request, code)
    detail = error.detail
    if error.status_code == 404:
        detail = "there is nothing at this path"
    if error.status_code == 405:
        detail = f"this path does not take {request.method}"
    return _response(
        request, code, error.status_code, detail=detail, headers=dict(error.headers or {})
    )


def tell_unexpected(request: Request) -> Answer:
    """Answer a bug of ours; the log has the line about it, and this answer has the same id."""
    return _response(request, CODES[500], 500, detail=OPAQUE[500], headers={})


def _response(
    request: Request,
    code: str,
    status: int,
    *,
    detail: str,
    headers: dict[str, str],
    data: dict[str, Any] | None = None,
) -> Answer:
    problem = {
        "type": TYPE_PREFIX + code,
        "title": code.replace("-", " ").capitalize(),
        "status": status,
        "detail": detail,
        "request_id": request_id_of(request.scope),
        **(data or {}),
    }
    content = msgspec.json.encode(problem, enc_hook=str)
    return Answer(status=status, body=content, media_type=MEDIA_TYPE, headers=headers)


def _data(error: PenstockError) -> dict[str, Any]:
    """Return the fields of an error: what it is about, for programs."""
    if not is_dataclass(error):
        return {}
    return {field.name: getattr(error, field.name) for field in fields(error)}
