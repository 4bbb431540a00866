"""The shape of an endpoint and of one call of it, in plain types: a domain needs no web framework.

The types of an endpoint are read off its handler; routes and OpenAPI are made from the same table.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from types import NoneType
from typing import Any, Generic, Literal, Protocol, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from penstock.kernel.api_keys import Scope
from penstock.postgres.pool import Connection

P_co = TypeVar("P_co", covariant=True)
B_co = TypeVar("B_co", covariant=True)
T = TypeVar("T")

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

# For a connection: longer than any burst keeps them busy, shorter than a client's patience.
ACQUIRE_TIMEOUT = timedelta(seconds=10)
SMALL_BODY_BYTES_MAX = 64 * 1024  # Most bodies are a handful of fields.


class Call(Protocol[P_co, B_co]):
    """One authorised and decoded request; `parameters` are those of the path and of the query."""

    @property
    def parameters(self) -> P_co: ...
    @property
    def body(self) -> B_co: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def who(self) -> str: ...

    def connection(self) -> AbstractAsyncContextManager[Connection]: ...


class NoParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing in the path and nothing in the query."""


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """An answer with a status of its own, which the endpoint must list, and headers."""

    value: T
    status: int
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """An answer that is not one JSON value: bytes, or chunks of them as they come."""

    body: bytes | AsyncIterator[bytes]
    media_type: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A body that is read in chunks as they come, and its media type."""

    media_type: str
    chunks: AsyncIterator[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One method of one path. `scope` None means that no key is needed.

    `streams` says, by media type, what a streamed body holds and what is answered to it.
    `keys_are_unique`: a body in which an object has a key twice is refused. `tag` groups endpoints
    for readers; the app gives those of a domain the domain's name.
    """

    method: Method
    path: str
    handle: Callable[[Any], Awaitable[object]]
    scope: Scope | None
    summary: str
    statuses: tuple[int, ...]
    media_type: str
    takes_headers: tuple[str, ...]
    streams: Mapping[str, tuple[Any, Any]]
    body_bytes_max: int
    parameters_type: Any
    body_type: Any
    body_is_optional: bool
    body_decoder: msgspec.json.Decoder[Any] | None
    answer_type: Any
    keys_are_unique: bool = False
    tag: str | None = None


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
    streams: Mapping[str, tuple[Any, Any]] | None = None,
    body_bytes_max: int = SMALL_BODY_BYTES_MAX,
    keys_are_unique: bool = False,
) -> Endpoint:
    """Describe an endpoint; the types are those of `handle(call: Call[parameters, body])`.

    A body of a type or None may be absent.
    """
    hints = get_type_hints(handle, include_extras=True)
    returned = hints.pop("return")
    (taken,) = hints.values()
    parameters_type, body_type = get_args(taken)
    body_is_optional = NoneType in get_args(body_type)
    if body_is_optional:
        (body_type,) = [each for each in get_args(body_type) if each is not NoneType]
    has_json = body_type not in (None, NoneType, Stream)
    return Endpoint(
        method=method,
        path=path,
        handle=handle,
        scope=scope,
        summary=summary,
        statuses=statuses,
        media_type=media_type,
        takes_headers=takes_headers,
        streams=streams or {},
        body_bytes_max=body_bytes_max,
        parameters_type=parameters_type,
        body_type=body_type if has_json else None,
        body_is_optional=body_is_optional,
        body_decoder=msgspec.json.Decoder(body_type) if has_json else None,
        answer_type=_answer_type(returned),
        keys_are_unique=keys_are_unique,
    )


def _answer_type(returned: Any) -> Any:
    """Return what is encoded as JSON, or None for an empty answer or one that is no JSON."""
    if get_origin(returned) is Reply:
        (returned,) = get_args(returned)
    return None if returned in (None, NoneType, Content) else returned
