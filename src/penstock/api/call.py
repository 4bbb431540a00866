"""The shape of an endpoint and of one call of it. Its types are read off its handler."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from types import NoneType
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from starlette.datastructures import Headers
from starlette.responses import Response

from penstock.api.metrics import Depths
from penstock.app import Penstock
from penstock.kernel.keys import Scope
from penstock.postgres.pool import Connection

P = TypeVar("P")
B = TypeVar("B")
T = TypeVar("T")

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

# Longer than any burst keeps the connections busy, shorter than a client's patience.
ACQUIRE_TIMEOUT = timedelta(seconds=10)
SMALL_BODY_BYTES_MAX = 64 * 1024  # Everything but items is a handful of fields.


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What all calls share."""

    penstock: Penstock
    depths: Depths
    openapi: bytes
    docs: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[P, B]):
    """One authorised and decoded request; `parameters` are those of the path and of the query."""

    site: Site
    parameters: P
    body: B
    headers: Headers
    who: str

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        """Lend a connection; that the database may be away is dealt with around every call."""
        return self.site.penstock.pool.acquire(timeout=ACQUIRE_TIMEOUT.total_seconds())


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """An answer with a status of its own; it must be one that the endpoint lists."""

    value: T
    status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One method of one path. `scope` None means that no key is needed."""

    method: Method
    path: str
    handle: Callable[[Any], Awaitable[object]]
    scope: Scope | None
    summary: str
    statuses: tuple[int, ...]
    media_type: str
    takes_headers: tuple[str, ...]
    body_bytes_max: int
    parameters_type: Any
    body_type: Any
    body_decoder: msgspec.json.Decoder[Any] | None
    answer_type: Any


def endpoint(  # noqa: PLR0913  One argument per column of the table.
    method: Method,
    path: str,
    handle: Callable[[Any], Awaitable[object]],
    *,
    scope: Scope | None,
    summary: str,
    statuses: tuple[int, ...] = (200,),
    media_type: str = "application/json",
    takes_headers: tuple[str, ...] = (),
    body_bytes_max: int = SMALL_BODY_BYTES_MAX,
) -> Endpoint:
    """Describe an endpoint; the types are those of `handle(call: Call[parameters, body])`."""
    hints = get_type_hints(handle, include_extras=True)
    returned = hints.pop("return")
    (taken,) = hints.values()
    parameters_type, body_type = get_args(taken)
    has_body = body_type not in (None, NoneType)
    return Endpoint(
        method=method,
        path=path,
        handle=handle,
        scope=scope,
        summary=summary,
        statuses=statuses,
        media_type=media_type,
        takes_headers=takes_headers,
        body_bytes_max=body_bytes_max,
        parameters_type=parameters_type,
        body_type=body_type if has_body else None,
        body_decoder=msgspec.json.Decoder(body_type) if has_body else None,
        answer_type=_answer_type(returned),
    )


def _answer_type(returned: Any) -> Any:
    """Return what is encoded as JSON, or None for an empty answer or one that is no JSON."""
    if get_origin(returned) is Reply:
        return get_args(returned)[0]
    return None if returned in (None, NoneType, Response) else returned
