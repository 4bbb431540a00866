"""Encode, check and decode payloads: JSON with limits, typed if the lane's kind has a type."""

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation
from functools import cache
from math import isfinite
from typing import Any, Protocol

import msgspec
from msgspec import inspect
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import CoreSchema, core_schema

from penstock.base.errors import InvalidInput

_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # Not the text \u0000, which is \\u0000 in JSON.
# What decoding raises: another type, a type that msgspec does not know, too many levels.
UNDECODABLE = (msgspec.DecodeError, NotImplementedError, RecursionError)
DEPTH_MAX = 64  # Deeper JSON is an attack or a mistake; PostgreSQL and parsers recurse over it.


class Decoder(Protocol):
    """Decodes the payloads of one type; raises one of UNDECODABLE."""

    def decode(self, text: str, /) -> Any: ...


class Money(Decimal):
    """An exact amount. Encoded as a string; a JSON float is refused, never rounded."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> CoreSchema:
        """Return how pydantic validates and encodes an amount in a model: as elsewhere."""
        return core_schema.no_info_plain_validator_function(
            _amount,
            json_schema_input_schema=core_schema.str_schema(),
            serialization=core_schema.to_string_ser_schema(),
        )


def encode(payload: object, payload_type: type[Any] | None = None) -> str:
    """Return the payload as JSON text, or raise InvalidInput naming the field that is wrong."""
    try:
        text = msgspec.json.encode(payload, enc_hook=_plain).decode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as refused:
        raise InvalidInput("payload", f"is not JSON: {_first_line(refused)}") from refused
    if "\\u0000" in text and _NUL.search(text):
        raise InvalidInput("payload", "holds a NUL character")
    if text.count("{") + text.count("[") > DEPTH_MAX and _depth(text) > DEPTH_MAX:
        raise InvalidInput("payload", f"is nested deeper than {DEPTH_MAX} levels")
    if "null" in text:
        _refuse_lost_numbers(payload, "payload")
    if payload_type is not None:
        check(text, payload_type)
    return text


def without_nul(text: str) -> str:
    """Return JSON text with each NUL character replaced by U+FFFD."""
    return _NUL.sub(lambda found: found[0][:-6] + "\\ufffd", text) if "\\u0000" in text else text


def check(text: str, payload_type: type[Any]) -> None:
    """Raise InvalidInput naming the field if the text is not a payload of this type."""
    try:
        decoder(payload_type).decode(text)
    except UNDECODABLE as refused:
        reason, _, path = str(refused).partition(" - at `$")
        raise InvalidInput(f"payload{path.rstrip('`')}", reason) from refused


def check_type(payload_type: Any) -> None:
    """Raise InvalidInput for a type that no payload could be decoded to."""
    try:
        unknown = [each for each in _custom_types(payload_type) if not _is_supported(each)]
        decoder(payload_type)
    except (TypeError, NameError) as refused:
        raise InvalidInput(
            "handler", f"cannot decode payloads: {_first_line(refused)}"
        ) from refused
    if unknown:
        name = getattr(unknown[0], "__qualname__", str(unknown[0]))
        raise InvalidInput(
            "handler",
            f"cannot decode payloads to {name}: use a msgspec Struct, a dataclass, "
            "a TypedDict, a pydantic model or a plain JSON type",
        )


def _custom_types(payload_type: Any) -> Iterator[Any]:
    """Yield the types inside a payload's type that msgspec leaves to its hook."""
    pending: list[Any] = [inspect.type_info(Any if payload_type is object else payload_type)]
    seen: set[int] = set()
    while pending:
        node = pending.pop()
        if id(node) in seen or not isinstance(node, inspect.Type | inspect.Field):
            continue
        seen.add(id(node))
        if isinstance(node, inspect.CustomType):
            yield node.cls
        for name in node.__struct_fields__:
            value = getattr(node, name)
            pending += value if isinstance(value, tuple) else (value,)


def _is_supported(custom: Any) -> bool:
    return custom is Money or _is_model(custom)


def _is_model(wanted: Any) -> bool:
    return isinstance(wanted, type) and issubclass(wanted, BaseModel)


@cache
def decoder(payload_type: type[Any]) -> Decoder:
    """Return a type's decoder; unknown fields are ignored, so old workers take new payloads."""
    if _is_model(payload_type):
        return _ModelDecoder(payload_type)
    wanted = Any if payload_type is object else payload_type
    return msgspec.json.Decoder(wanted, dec_hook=_special)


class _ModelDecoder:
    """Decodes a pydantic model from the text itself: a number keeps all its digits."""

    def __init__(self, model: type[BaseModel]) -> None:
        self._adapter = TypeAdapter(model)

    def decode(self, text: str, /) -> BaseModel:
        try:
            return self._adapter.validate_json(text)
        except ValidationError as refused:
            reason, path = _first_error(refused)
            raise msgspec.ValidationError(f"{reason} - at `${path}`") from refused


def _first_error(refused: ValidationError) -> tuple[str, str]:
    """Return the message and the path of the first error, without the value that was given."""
    first = refused.errors(include_url=False, include_context=False, include_input=False)[0]
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"])
    return first["msg"], "".join(steps)


def _special(wanted: type[Any], value: object) -> object:
    if _is_model(wanted):
        try:
            # Models in strict mode accept dates and the like only from JSON.
            return wanted.model_validate_json(msgspec.json.encode(value))
        except ValidationError as refused:
            reason, path = _first_error(refused)
            raise ValueError(f"{wanted.__qualname__}{path}: {reason}") from refused
    if wanted is not Money:
        raise NotImplementedError(f"a payload cannot hold {wanted.__qualname__}")
    return _amount(value)


def _amount(value: object) -> Money:
    """Return an amount; raises ValueError, to which msgspec and pydantic add the field's path."""
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        raise ValueError("Expected an amount as text or a whole number, not a float")  # noqa: TRY004
    try:
        amount = Money(value)
    except InvalidOperation:
        raise ValueError("Expected an amount such as '12.50'") from None
    if not amount.is_finite():
        raise ValueError("Expected a finite amount")
    return amount


def _plain(value: object) -> object:
    if isinstance(value, Money):
        return str(value)
    if isinstance(value, BaseModel):
        # As the model's own validation expects it: names by alias, nothing computed.
        return msgspec.Raw(value.model_dump_json(by_alias=True, round_trip=True).encode())
    raise TypeError(f"{type(value).__qualname__} has no JSON form")


def _refuse_lost_numbers(value: object, field: str) -> None:
    """Raise for a NaN or an infinity, which the encoder would silently turn into null."""
    if isinstance(value, float) and not isfinite(value):
        raise InvalidInput(field, f"is {value}, which JSON cannot represent")
    for name, inner in _children(value):
        _refuse_lost_numbers(inner, f"{field}.{name}")


def _children(value: object) -> Iterable[tuple[object, object]]:
    if isinstance(value, dict):
        return value.items()  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return enumerate(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value).items()
    if isinstance(value, BaseModel):
        return iter(value)
    return ()


def _depth(text: str) -> int:
    """Return how deep the JSON text is nested; brackets inside strings do not count."""
    deepest = depth = 0
    in_string = escaped = False
    for character in text:
        if in_string:
            in_string = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            in_string = True
        elif character in "{[":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "}]":
            depth -= 1
    return deepest


def _first_line(failure: BaseException) -> str:
    return (str(failure) or type(failure).__name__).splitlines()[0]
