"""Decode parameters and bodies: capped in size and time, refused with the field's name."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from functools import cache
from typing import Any, cast

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from penstock.base.errors import InvalidInput
from penstock.base.refused_field import name_field, shorten, to_reason
from penstock.base.unique_keys import check_unique_keys
from penstock.base.watchdog import Watchdog
from penstock.contract.http import Endpoint, NoParameters, Stream
from penstock.contract.paging import is_whole_number
from penstock.web.fast_path import fast_path
from penstock.web.request_wrapper import header

# A slow phone sends a megabyte in this time; an attack with slow requests does not.
BODY_TIMEOUT = timedelta(seconds=30)

TRUNCATED = "Input data was truncated"  # As msgspec says it.

# An escape for the first half of a pair without one for the second. The backslashes before it come
# in pairs, or it would be an escaped backslash and plain text.
_HALF_PAIR = re.compile(
    rb"(?<!\\)(?:\\\\)*\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
)
_NO_PARAMETERS = NoParameters()


def decode_parameters(endpoint: Endpoint, in_path: Mapping[str, str], request: Request) -> Any:
    """Return the parameters of path and query as the endpoint's type; raises InvalidInput."""
    if endpoint.parameters_type is NoParameters and not request.scope["query_string"]:
        return _NO_PARAMETERS
    given = dict(in_path)
    # Most requests have no query, and parsing it would be a tenth of their cost.
    query = request.query_params.multi_items() if request.scope["query_string"] else ()
    for name, value in query:
        if name in given:
            raise InvalidInput(shorten(name), "is given twice")
        given[name] = value
    instants, numbers = _checked_by_form(endpoint.parameters_type)
    for name, value in given.items():
        if "\x00" in value:
            raise InvalidInput(shorten(name), "holds a NUL character")
        # msgspec would take a number for seconds since 1970.
        if name in instants and ":" not in value:
            raise InvalidInput(name, "is not an instant such as 2030-01-31T12:00:00Z")
        # msgspec would round 7.001 to 7, another item.
        if name in numbers and not is_whole_number(value.removeprefix("-")):
            raise InvalidInput(name, "is not a whole number")
    try:
        return msgspec.convert(given, endpoint.parameters_type, strict=False)
    except msgspec.ValidationError as refused:
        raise name_field(refused) from refused


@cache
def _checked_by_form(parameters_type: Any) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of the parameters that are instants, and of those that are whole numbers."""
    described = cast("msgspec.inspect.StructType", msgspec.inspect.type_info(parameters_type))

    def named(kind: type[msgspec.inspect.Type]) -> frozenset[str]:
        return frozenset(each.encode_name for each in described.fields if _is(each.type, kind))

    return named(msgspec.inspect.DateTimeType), named(msgspec.inspect.IntType)


def _is(described: msgspec.inspect.Type, kind: type[msgspec.inspect.Type]) -> bool:
    """Return whether a type is of a kind, or may be; a parameter that is absent has no form."""
    if isinstance(described, msgspec.inspect.UnionType):
        return any(_is(each, kind) for each in described.types)
    return isinstance(described, kind)


async def decode_body(endpoint: Endpoint, request: Request, slow_bodies: Watchdog) -> Any:
    """Return the body as the endpoint's type, or None if there may be none; raises InvalidInput.

    Raises HTTPException for a body of another media type, one too large, or one too slow.
    """
    if endpoint.streams:
        return _stream(endpoint, request)
    if endpoint.body_decoder is None:
        return None
    if not endpoint.body_is_optional:
        _refuse_form(request)
    try:
        raw = await _read_capped(request, endpoint.body_bytes_max, slow_bodies)
    except TimeoutError:
        raise _too_slow() from None
    except ClientDisconnect:
        raise HTTPException(400, "the body ended early") from None
    if endpoint.body_is_optional:
        if not raw:
            return None
        _refuse_form(request)  # Without a body, nobody sends a media type.
    try:
        body = endpoint.body_decoder.decode(raw)
        if endpoint.keys_are_unique:
            check_unique_keys(raw)
    except msgspec.ValidationError as refused:
        raise name_field(refused) from refused
    except (msgspec.DecodeError, UnicodeDecodeError) as malformed:
        raise InvalidInput("body", to_reason(_cause(malformed, raw))) from malformed
    except RecursionError as deep:
        raise InvalidInput("body", "is nested too deeply") from deep
    if b"\\u0000" in raw:
        _refuse_nul(body)
    return body


def _refuse_form(request: Request) -> None:
    _refuse_encoding(header(request, b"content-encoding"))
    _refuse_media_type(header(request, b"content-type"))


def _stream(endpoint: Endpoint, request: Request) -> Stream:
    _refuse_encoding(header(request, b"content-encoding"))
    media_type = _media_type(header(request, b"content-type"))
    if media_type not in endpoint.streams:
        raise HTTPException(415, f"send the body as {' or '.join(endpoint.streams)}")
    _refuse_length(request, endpoint.body_bytes_max)
    return Stream(media_type=media_type, chunks=_chunks(request, endpoint.body_bytes_max))


async def _chunks(request: Request, bytes_max: int) -> AsyncIterator[bytes]:
    """Yield the body as it arrives; each chunk may take as long as a whole body may elsewhere."""
    chunks = aiter(request.stream())
    length = 0
    while True:
        try:
            async with asyncio.timeout(BODY_TIMEOUT.total_seconds()):
                chunk = await anext(chunks, None)
        except TimeoutError:
            raise HTTPException(
                408, "the body arrived too slowly", {"Connection": "close"}
            ) from None
        except ClientDisconnect:
            raise HTTPException(400, "the body ended early") from None
        if chunk is None:
            return
        length += len(chunk)
        if length > bytes_max:
            raise _too_large(bytes_max)
        yield chunk


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _refuse_encoding(encoding: str) -> None:
    """Refuse a compressed body: a few bytes of it may be gigabytes."""
    if encoding and encoding.strip().lower() != "identity":
        raise HTTPException(
            415, "send the body without Content-Encoding", {"Accept-Encoding": "identity"}
        )


def _refuse_media_type(content_type: str) -> None:
    media_type = _media_type(content_type)
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise HTTPException(415, "send the body as application/json")


async def _read_capped(request: Request, bytes_max: int, slow_bodies: Watchdog) -> bytes:
    """Read the body, never more than `bytes_max` of it, whatever its headers say."""
    fast = fast_path(request.scope)
    whole = None if fast is None else fast.take_body()
    if whole is None:
        _refuse_length(request, bytes_max)
        with slow_bodies.guard():
            return await _read_chunks(request, bytes_max)
    if len(whole) > bytes_max:
        raise _too_large(bytes_max)
    return whole


def _refuse_length(request: Request, bytes_max: int) -> None:
    """Refuse a body that is going to be too large, instead of waiting for it."""
    length = header(request, b"content-length")
    if is_whole_number(length) and int(length) > bytes_max:
        raise _too_large(bytes_max)


async def _read_chunks(request: Request, bytes_max: int) -> bytes:
    chunks: list[bytes] = []
    length = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunks.append(message.get("body", b""))
        length += len(chunks[-1])
        if length > bytes_max:
            raise _too_large(bytes_max)
        if not message.get("more_body", False):
            return b"".join(chunks)


def _too_slow() -> HTTPException:
    return HTTPException(408, "the body arrived too slowly", {"Connection": "close"})


def _too_large(bytes_max: int) -> HTTPException:
    return HTTPException(413, f"the body is over {bytes_max} bytes", {"Connection": "close"})


def _refuse_nul(body: object) -> None:
    """Raise InvalidInput for a NUL in a field; the kernel checks payloads."""
    parts: list[tuple[str, object]] = [("", body)]
    if isinstance(body, list):
        parts = [(f"items[{index}].", part) for index, part in enumerate(body)]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    for place, part in parts:
        if isinstance(part, msgspec.Struct):
            for field in msgspec.structs.fields(part):
                value = getattr(part, field.name)
                if isinstance(value, str) and "\x00" in value:
                    raise InvalidInput(f"{place}{field.encode_name}", "holds a NUL character")


def _cause(malformed: Exception, raw: bytes) -> str:
    """Return what is wrong; msgspec takes half a surrogate pair near the end for a cut body."""
    message = str(malformed)
    if message == TRUNCATED and (found := _HALF_PAIR.search(raw)) and b'"' in raw[found.end() :]:
        return "JSON is malformed: half of a utf-16 surrogate pair"
    return message
