"""Build the REST types of a lane and of its change from the definition of the policy's fields."""

from collections.abc import Mapping
from itertools import groupby
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.kernel.policy import PolicyField

COUNT = Annotated[int, Meta(ge=0, le=2**31 - 1)]

LANE = (
    "A lane and its policy. `rate` is items per second over all workers; null means no limit. "
    "`owner` is the domain that the lane belongs to; `guards` are the verbs and fields that it "
    "refuses to others, each with what to use instead."
)
BACKOFF = "How the wait grows: base * multiplier ** (first_exponent + failures - 1), capped."
LANE_CHANGE = "The fields of a policy to set; others keep their values. Durations are ISO 8601."
BACKOFF_CHANGE = "The fields of a backoff to set."


def lane_structs(
    fields: Mapping[str, PolicyField], *, module: str
) -> tuple[type[msgspec.Struct], type[msgspec.Struct]]:
    """Return `Lane` and `LaneChange`; fields with a path of two names are nested, as `backoff`."""
    shown: list[Any] = [("name", str)]
    changed: list[Any] = []
    for name, group in groupby(fields.values(), key=lambda field: field.path[0]):
        nested = list(group)
        if len(nested[0].path) == 1:
            shown.append((name, _shown(nested[0])))
            changed.append((name, _changed(nested[0]), UNSET))
            continue
        inner = [(field.path[1], _shown(field)) for field in nested]
        inner_change = [(field.path[1], _changed(field), UNSET) for field in nested]
        title = name.capitalize()
        shown.append((name, _struct(title, inner, BACKOFF, module=module)))
        change = _struct(f"{title}Change", inner_change, BACKOFF_CHANGE, module=module)
        changed.append((name, change | UnsetType, UNSET))
    shown += [("owner", str | None), ("guards", dict[str, str]), ("version", int)]
    return (
        _struct("Lane", shown, LANE, module=module),
        _struct("LaneChange", changed, LANE_CHANGE, module=module),
    )


def _shown(field: PolicyField) -> Any:
    plain: Any = Literal[field.choices] if field.choices else field.type
    return plain | None if field.is_optional else plain


def _changed(field: PolicyField) -> Any:
    """Return the type of a field to set: UNSET says that it was not given."""
    plain: Any = COUNT if field.type is int else _shown(field)
    if field.rule.length_max is not None:
        plain = Annotated[field.type, Meta(max_length=field.rule.length_max)]
    return plain | UnsetType | None if field.is_optional else plain | UnsetType


def _struct(name: str, fields: list[Any], doc: str, *, module: str) -> type[msgspec.Struct]:
    is_change = name.endswith("Change")
    return msgspec.defstruct(
        name,
        fields,
        namespace={"__doc__": doc},
        module=module,
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=is_change,  # Input refuses unknown fields.
        omit_defaults=is_change,
    )
