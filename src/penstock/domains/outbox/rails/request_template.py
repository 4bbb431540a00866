"""Fill a JSON template with fields of an instruction. There is no code in a template.

A string that is `{field}` and nothing else is replaced by the value of the field; `{field?}` is
left out if there is none. Elsewhere (in a longer string, a URL, a header) the value is a text or a
number. A dot leads into an object, as `{destination.iban}`; every brace belongs to a field.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

from penstock.base.errors import InvalidInput
from penstock.base.money import InstructedAmount
from penstock.domains.outbox.instruction import Instruction
from penstock.domains.outbox.rails.rail import rail_key

# What a template may name; none of them differs between two attempts.
FIELDS = (
    "amount", "amount_minor", "created_at", "currency", "destination", "idempotency_key",
    "instruction_id", "key", "outbox_id", "participant_id", "payload", "rail_type", "sequence_id",
)  # fmt: skip
# By these a rail can find a repeat. An instruction that has failed may come again under another key
# of its producer, so its instruction_id is not one of them.
KEYS = frozenset({"key", "outbox_id"})
DEPTH_MAX = 20

_FIELD = re.compile(r"\{([a-z_]+(?:\.[A-Za-z0-9_-]+)*)(\?)?\}")


class _Absent:
    """The instruction has no such value, and the template allows it."""


ABSENT = _Absent()


def fields_of(instruction: Instruction) -> dict[str, Any]:
    """Return what a template may name, as JSON values."""
    money = InstructedAmount(instruction.amount, instruction.currency)
    return {
        "amount": money.text,
        "amount_minor": money.minor,
        "created_at": instruction.created_at.isoformat(),
        "currency": instruction.currency,
        "destination": instruction.payload.get("destination"),
        "idempotency_key": instruction.idempotency_key,
        "instruction_id": instruction.instruction_id,
        "key": rail_key(instruction),
        "outbox_id": str(instruction.outbox_id),
        "participant_id": instruction.participant_id,
        "payload": instruction.payload,
        "rail_type": instruction.rail_type,
        "sequence_id": instruction.sequence_id,
    }


def fill(template: object, fields: Mapping[str, Any], *, path: str) -> Any:
    """Return the template with its fields; raises InvalidInput if one has no value."""
    if isinstance(template, str):
        matched = _FIELD.fullmatch(template)
        return _value(matched, fields, path) if matched else fill_text(template, fields, path=path)
    if isinstance(template, Mapping):
        filled = {
            name: fill(each, fields, path=f"{path}.{name}")
            for name, each in cast("Mapping[str, object]", template).items()
        }
        return {name: each for name, each in filled.items() if each is not ABSENT}
    if isinstance(template, list):
        values = [fill(each, fields, path=path) for each in cast("list[object]", template)]
        return [each for each in values if each is not ABSENT]
    return template


def fill_text(template: str, fields: Mapping[str, Any], *, path: str) -> str:
    """Return a text with its fields; raises InvalidInput if one is no text or number."""
    if "{" not in template:
        return template
    return _FIELD.sub(lambda matched: _text(matched, fields, path), template)


def fill_url(template: str, fields: Mapping[str, Any], *, path: str) -> str:
    """Return a URL whose fields are percent-encoded; raises InvalidInput if one has no value."""

    def encoded(matched: re.Match[str]) -> str:
        value = _text(matched, fields, path)
        if value in {"", ".", ".."}:
            # As a part of a path, these lead to another place.
            raise InvalidInput(path, f"{matched[1]} is {value!r}")
        return quote(value, safe="")

    return _FIELD.sub(encoded, template) if "{" in template else template


def fill_header(template: str, fields: Mapping[str, Any], *, path: str) -> str:
    """Return the value of a header; raises InvalidInput for what cannot be part of one."""
    value = fill_text(template, fields, path=path)
    if not is_header_value(value):
        # A line break would begin another header. The value itself may be confidential.
        raise InvalidInput(path, "contains a character that is not printable ASCII")
    return value


def is_header_value(value: str) -> bool:
    """Return whether a header can have this value."""
    return value.isascii() and value.isprintable()


def check_template(template: object, *, path: str, depth: int = 0) -> None:
    """Raise InvalidInput for a template that would not be filled completely.

    What is not filled goes out as it is, the same for each instruction: a rail would take the
    second for a repeat of the first.
    """
    if depth > DEPTH_MAX:
        raise InvalidInput(path, f"is nested more than {DEPTH_MAX} deep")
    if isinstance(template, str):
        matched = _FIELD.fullmatch(template)
        if matched:
            _check_field(matched, path=path)
        else:
            check_text(template, path=path)
    elif isinstance(template, Mapping):
        for name, each in cast("Mapping[str, object]", template).items():
            if _has_brace(name):
                raise InvalidInput(f"{path}.{name}", "a name must not have a field")
            check_template(each, path=f"{path}.{name}", depth=depth + 1)
    elif isinstance(template, list):
        for each in cast("list[object]", template):
            check_template(each, path=path, depth=depth + 1)


def check_text(template: str, *, path: str) -> None:
    """Raise InvalidInput for a text, a URL or a header that would not be filled completely."""
    for matched in _FIELD.finditer(template):
        _check_field(matched, path=path)
        if matched[2]:
            raise InvalidInput(path, f"{matched[0]} can be left out only as a whole value")
    if _has_brace(_FIELD.sub("", template)):
        raise InvalidInput(path, "has a brace that is not part of a field")


def keys_in(template: object) -> frozenset[str]:
    """Return the fields of a checked template by which the rail can find a repeat."""
    if isinstance(template, str):
        return KEYS.intersection(matched[1] for matched in _FIELD.finditer(template))
    parts: Iterable[object] = ()
    if isinstance(template, Mapping):
        parts = cast("Mapping[str, object]", template).values()
    elif isinstance(template, list | tuple):
        parts = cast("Sequence[object]", template)
    return frozenset[str]().union(*(keys_in(each) for each in parts))


def _check_field(matched: re.Match[str], *, path: str) -> None:
    if matched[1].split(".")[0] not in FIELDS:
        raise InvalidInput(path, f"unknown field {matched[1]!r}")


def _has_brace(text: str) -> bool:
    return "{" in text or "}" in text


def _text(matched: re.Match[str], fields: Mapping[str, Any], path: str) -> str:
    value = _value(matched, fields, path)
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise InvalidInput(path, f"{matched[1]} is not a text or a number")
    return str(value)


def _value(matched: re.Match[str], fields: Mapping[str, Any], path: str) -> Any:
    value: Any = fields
    for name in matched[1].split("."):
        value = cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else None
        if value is None:
            if matched[2]:
                return ABSENT
            raise InvalidInput(path, f"the instruction has no {matched[1]}")
    return value
