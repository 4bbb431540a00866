"""Parameters and bodies on their way in: capped, decoded, and refused with the field's name."""

import asyncio
import re
from datetime import timedelta
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from penstock.api.call import Endpoint
from penstock.base.errors import InvalidInput

BODY_TIMEOUT = timedelta(
    seconds=30
)  # A slow phone sends a megabyte in this; a slow attack does not.
NAME_LENGTH_MAX = 100  # Of a stranger's field name that we repeat in an answer.

_NAMED = re.compile(r"(unknown|missing required) field `(.*)`", re.DOTALL)


def read_parameters(endpoint: Endpoint, request: Request) -> Any:
    """Return the parameters of path and query as the endpoint's type, or raise InvalidInput."""
    given: dict[str, str] = dict(request.path_params)
    for name, value in request.query_params.multi_items():
        if name in given:
            raise InvalidInput(_short(name), "is given twice")
        given[name] = value
    for name, value in given.items():
        if "\x00" in value:
            raise InvalidInput(_short(name), "holds a NUL character")
    try:
        return msgspec.convert(given, endpoint.parameters_type, strict=False)
    except msgspec.ValidationError as refused:
        raise _named(refused) from refused


async def read_body(endpoint: Endpoint, request: Request) -> Any:
    """Return the body as the endpoint's type, or None where it takes none; raises InvalidInput.

    A body that is no JSON by its own word, too large or too slow raises HTTPException.
    """
    if endpoint.body_decoder is None:
        return None
    _refuse_media_type(request.headers.get("content-type", ""))
    raw = await _read_capped(request, endpoint.body_bytes_max)
    try:
        body = endpoint.body_decoder.decode(raw)
    except msgspec.ValidationError as refused:
        raise _named(refused) from refused
    except (msgspec.DecodeError, UnicodeDecodeError) as malformed:
        raise InvalidInput("body", _reason(str(malformed))) from malformed
    except RecursionError as deep:
        raise InvalidInput("body", "is nested too deeply") from deep
    if b"\\u0000" in raw:
        _refuse_nul(body)
    return body


def _refuse_media_type(content_type: str) -> None:
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise HTTPException(415, "send the body as application/json")


async def _read_capped(request: Request, bytes_max: int) -> bytes:
    """Read the body, never more than `bytes_max` of it, whatever its headers say."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT.total_seconds()):
            async for chunk in request.stream():
                body += chunk
                if len(body) > bytes_max:
                    raise HTTPException(
                        413, f"the body is over {bytes_max} bytes", {"Connection": "close"}
                    )
    except TimeoutError:
        raise HTTPException(408, "the body came too slowly", {"Connection": "close"}) from None
    except ClientDisconnect:
        raise HTTPException(400, "the body ended early") from None
    return bytes(body)


def _named(refused: msgspec.ValidationError) -> InvalidInput:
    """Name the field that msgspec refuses: its messages end in a path such as `$[3].due_at`."""
    message, _, path = str(refused).partition(" - at `$")
    place = path.removesuffix("`").removeprefix(".")
    if place.startswith("["):
        place = f"items{place}"
    named = _NAMED.search(message)
    if named is None:
        return InvalidInput(_short(place) or "body", _reason(message))
    field = ".".join(filter(None, (place, named[2])))
    return InvalidInput(_short(field), f"is {named[1].removesuffix(' required')}")


def _refuse_nul(body: object) -> None:
    """Raise InvalidInput for a NUL in a field of ours; payloads are the kernel's to judge."""
    parts: list[tuple[str, object]] = [("", body)]
    if isinstance(body, list):
        parts = [(f"items[{index}].", part) for index, part in enumerate(body)]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    for place, part in parts:
        if isinstance(part, msgspec.Struct):
            for field, value in msgspec.structs.asdict(part).items():
                if isinstance(value, str) and "\x00" in value:
                    raise InvalidInput(f"{place}{field}", "holds a NUL character")


def _reason(message: str) -> str:
    return message[:1].lower() + message[1:]


def _short(name: str) -> str:
    return name[:NAME_LENGTH_MAX]
