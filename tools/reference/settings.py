"""docs/reference/settings.md: one block per section of the environment."""

import ast
import inspect
from dataclasses import asdict, is_dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from penstock.base.settings import variables_of
from penstock.compose.domains import BUILT_IN, KERNEL
from tools.reference.blocks import Incomplete, choice, code, plain, sentences, table

KINDS: dict[Any, str] = {
    bool: "`true` or `false`",
    float: "number",
    int: "whole number",
    str: "text",
    timedelta: "seconds",
    tuple: "list",
    Path: "path",
    SecretStr: "text",
}


def blocks(_page: str) -> dict[str, str]:
    """Return a block for each section, named after its class."""
    sections = tuple(each for domain in (KERNEL, *BUILT_IN) for each in domain.settings)
    return {each.__name__: _section(each) for each in sections}


def _section(section: type[BaseSettings]) -> str:
    meanings = _meanings(section)
    rows = [
        _row(section, name, field, meaning=meanings.get(name))
        for name, field in section.model_fields.items()
    ]
    heads = ("variable", "default", "value", "meaning")
    return f"{sentences(section.__doc__ or '')}\n\n{table(heads, rows)}"


def _meanings(section: type[BaseSettings]) -> dict[str, str]:
    """Return the string under each field."""
    (tree,) = ast.parse(inspect.getsource(section)).body
    assert isinstance(tree, ast.ClassDef)
    return {
        field.target.id: ast.literal_eval(below.value)
        for field, below in pairwise(tree.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
    }


def _row(
    section: type[BaseSettings], name: str, field: FieldInfo, *, meaning: str | None
) -> tuple[str, ...]:
    variable, *_ = variables_of(section, name)  # Our sections have one each to document.
    if not meaning:
        raise Incomplete(f"{variable} has no text under its field in {section.__module__}")
    return code(variable), _default(field.default), _values(field), plain(meaning)


def _default(value: object) -> str:
    match value:
        case None | ():
            return "absent"
        case timedelta():
            return code(_number(value))
        case bool():
            return code(str(value).lower())
        case _:
            return code(value)


def _values(field: FieldInfo) -> str:
    """Return the type of a variable and its range."""
    kind = _without_none(field.annotation)
    if get_origin(kind) is Literal:
        return choice(get_args(kind))
    return KINDS[get_origin(kind) or kind] + _limits(field)


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in (Union, UnionType):
        (kind,) = (each for each in get_args(kind) if each is not NoneType)
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _limits(field: FieldInfo) -> str:
    limits = {
        name: _number(bound)
        for each in field.metadata
        if isinstance(each, annotated_types.BaseMetadata) and is_dataclass(each)
        for name, bound in asdict(each).items()
    }
    match limits:
        case {"ge": low, "le": high}:
            return f", {low} to {high}"
        case {"gt": low, "le": high}:
            return f", above {low}, at most {high}"
        case {"gt": low}:
            return f", above {low}"
        case {"min_length": length}:
            return f", at least {length} characters"
        case _ if not limits:
            return ""
        case _:
            raise Incomplete(f"no words for the limits {limits}")


def _number(value: Any) -> str:
    if not isinstance(value, timedelta):
        return str(value)
    seconds = value.total_seconds()
    return str(int(seconds)) if seconds.is_integer() else str(seconds)
