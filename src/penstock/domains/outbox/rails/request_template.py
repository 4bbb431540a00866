"""Fill a JSON template with fields of an instruction. There is no code in a template.

A string that is `{field}` and nothing else is replaced by the value of the field; `{field?}` is
left out if the instruction has no such value. A dot leads into an object, as `{destination.iban}`.
"""

import re
from collections.abc import Mapping
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
KEYS = frozenset({"key", "instruction_id", "outbox_id"})  # By these a rail can find a repeat.
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
        return _value(matched, fields, path) if matched else template
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


def fill_url(template: str, fields: Mapping[str, Any], *, path: str) -> str:
    """Return a URL whose fields are percent-encoded; raises InvalidInput if one has no value."""

    def encoded(matched: re.Match[str]) -> str:
        value = _value(matched, fields, path)
        if not isinstance(value, str | int) or isinstance(value, bool) or value == "":
            raise InvalidInput(path, f"{matched[1]} is not a text or a number")
        return quote(str(value), safe="")

    return _FIELD.sub(encoded, template)


def check_template(template: object, *, path: str, depth: int = 0) -> None:
    """Raise InvalidInput for a template that names an unknown field."""
    if depth > DEPTH_MAX:
        raise InvalidInput(path, f"is nested more than {DEPTH_MAX} deep")
    if isinstance(template, str):
        for matched in _FIELD.finditer(template):
            if matched[1].split(".")[0] not in FIELDS:
                raise InvalidInput(path, f"unknown field {matched[1]!r}")
    elif isinstance(template, Mapping):
        for name, each in cast("Mapping[str, object]", template).items():
            check_template(each, path=f"{path}.{name}", depth=depth + 1)
    elif isinstance(template, list):
        for each in cast("list[object]", template):
            check_template(each, path=path, depth=depth + 1)


def names_key(template: object) -> bool:
    """Return whether the template contains a field by which the rail can find a repeat."""
    if isinstance(template, str):
        return any(matched[1] in KEYS for matched in _FIELD.finditer(template))
    if isinstance(template, Mapping):
        return any(names_key(each) for each in cast("Mapping[str, object]", template).values())
    if isinstance(template, list):
        return any(names_key(each) for each in cast("list[object]", template))
    return False


def _value(matched: re.Match[str], fields: Mapping[str, Any], path: str) -> Any:
    value: Any = fields
    for name in matched[1].split("."):
        value = cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else None
        if value is None:
            if matched[2]:
                return ABSENT
            raise InvalidInput(path, f"the instruction has no {matched[1]}")
    return value
