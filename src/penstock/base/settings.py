"""The environment, read once and checked at start; no other module reads it.

Owners declare their variables as a section: a subclass of BaseSettings configured by SECTION.
The string under a field says what its variable means; the reference page is generated from it.
"""

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, cast

from pydantic import (
    AliasChoices,
    AliasPath,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict, SettingsError

from penstock.base.errors import BadSetting

PREFIX = "PENSTOCK_"
DISPATCH_PREFIX = "DISPATCH_"  # Of variables that were named before there was a PREFIX.
TEMPORAL_PREFIX = "TEMPORAL_"  # Of variables that Temporal's own tools read as well.

_FIELD = re.compile(r'field "(?P<field>\w+)"')  # As pydantic-settings names it.

S = TypeVar("S", bound=BaseSettings)

# How every section is configured. Inputs stay out of messages, because they may be secrets. Without
# `use_attribute_docstrings`: to read the strings under the fields takes 30 ms at each start.
SECTION = SettingsConfigDict(
    env_prefix=PREFIX,
    extra="ignore",
    frozen=True,
    hide_input_in_errors=True,
    populate_by_name=True,
)


def _seconds(value: object) -> object:
    """Read a number as seconds."""
    try:
        return timedelta(seconds=float(value)) if isinstance(value, str) else value
    except (OverflowError, ValueError):
        raise ValueError("is not a number of seconds") from None


def _listed(value: object) -> object:
    """Read a list separated by commas or spaces."""
    return value.replace(",", " ").split() if isinstance(value, str) else value


# Types for fields of a section: a duration in seconds, and lists.
Seconds = Annotated[timedelta, BeforeValidator(_seconds)]
AsList = (NoDecode, BeforeValidator(_listed))
Names = Annotated[tuple[str, ...], *AsList]


class Settings(BaseSettings):
    """What every process reads: its database, its API, its logs and its worker."""

    model_config = SECTION

    database_url: SecretStr | None = None  # Secret, because it may hold a password.
    """Address of PostgreSQL, as `postgresql://user:password@host:port/database`. Absent:
    `penstock up`, and a `Penstock()` without an address, run an embedded server."""
    data_dir: Path = Path(".penstock")
    """Folder of the embedded server; other commands look here for a running one."""
    host: str = "127.0.0.1"
    """Address on which the API listens. An address that other machines can reach prints a
    warning."""
    port: int = Field(default=8080, ge=0, le=65535)
    """Port of the API; 0 takes any free one and prints it."""
    api_connections_max: int | None = Field(default=None, ge=1, le=100_000)
    """Most connections of clients that the API keeps open; a further one is answered with 503.
    Absent: a quarter of the files that the process may open, less 64."""
    admin_key: SecretStr | None = Field(default=None, min_length=16)
    """An admin key of your own, which `up` and `serve` accept. Absent: `up` creates one if there
    is none."""
    secret_key: SecretStr | None = None
    """Seals secrets at rest, such as those of subscriptions: 32 random bytes as base64. Of several
    keys, separated by commas, the first seals and all open. Absent: with an embedded server, one is
    generated and kept as `secret.key` in the data folder; with your own database, nothing that
    needs a secret can be stored."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe level that is logged. With `debug`, a failing command prints its
    traceback."""
    log_format: Literal["console", "json"] = "console"
    """`console` for people, `json` for programs."""
    pool_size_min: int = Field(default=5, ge=1, le=1000)
    """Database connections that are kept open."""
    pool_size_max: int = Field(default=20, ge=1, le=1000)
    """Most database connections that are opened; not less than the minimum."""
    poll_interval: Seconds = Field(
        default=timedelta(seconds=1),
        gt=timedelta(0),
        le=timedelta(minutes=1),
        validation_alias="PENSTOCK_POLL_INTERVAL_SECONDS",
    )
    """How often a worker looks for work without being notified."""
    shutdown_grace: Seconds = Field(
        default=timedelta(seconds=20),
        ge=timedelta(0),
        le=timedelta(hours=1),
        validation_alias="PENSTOCK_SHUTDOWN_GRACE_SECONDS",
    )
    """How long running handlers may take after the process was asked to stop."""
    domains: Names | None = None
    """Domains that this process runs, such as `slots webhooks`; other packages offer theirs as
    entry points `penstock.domains`. Absent: the built-in ones."""
    payload_bytes_max: int = Field(default=262_144, ge=2, le=64 * 1024 * 1024)
    """`payload_bytes_max` of a new lane; also limits the bodies of API requests and the data of an
    event."""
    max_attempts: int = Field(default=5, ge=1, le=1000, validation_alias="DISPATCH_MAX_ATTEMPTS")
    """`max_attempts` of a new lane."""
    backoff_base: Seconds = Field(
        default=timedelta(seconds=30),
        gt=timedelta(0),
        validation_alias="DISPATCH_BACKOFF_BASE_SECONDS",
    )
    """`backoff_base` of a new lane."""
    backoff_max: Seconds = Field(
        default=timedelta(hours=1),
        gt=timedelta(0),
        le=timedelta(days=30),  # As the policy of a lane.
        validation_alias="DISPATCH_BACKOFF_MAX_SECONDS",
    )
    """`backoff_cap` of a new lane; not less than the base."""
    backoff_jitter: float = Field(
        default=0.2, ge=0, le=1, allow_inf_nan=False, validation_alias="DISPATCH_BACKOFF_JITTER"
    )
    """`backoff_jitter` of a new lane."""

    @model_validator(mode="after")
    def _bounds_are_in_order(self) -> Self:
        if self.pool_size_max < self.pool_size_min:
            raise BadSetting("PENSTOCK_POOL_SIZE_MAX", "is less than PENSTOCK_POOL_SIZE_MIN")
        if self.backoff_max < self.backoff_base:
            raise BadSetting(
                "DISPATCH_BACKOFF_MAX_SECONDS", "is less than DISPATCH_BACKOFF_BASE_SECONDS"
            )
        return self


def section(kind: type[S]) -> S:
    """Return a section, read at the first call; raises BadSetting for an invalid variable."""
    return cast("S", read_once(kind))


@cache
def read_once(kind: type[BaseSettings]) -> BaseSettings:
    """Read a section and keep it for the life of the process."""
    return read_section(kind)


def settings() -> Settings:
    """Return the section of the process itself."""
    return section(Settings)


def read_section(kind: type[S], **overrides: Any) -> S:
    """Read the environment again; `overrides` (by field name, such as CLI options) win over it."""
    try:
        return kind(**overrides)
    except SettingsError as exc:
        # Its message alone names the field; its cause has the value, which may be a secret.
        found = _FIELD.search(str(exc))
        loc = (found["field"],) if found else ()
        raise BadSetting(_variables_at(kind, loc), "is not valid JSON") from None
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        raise BadSetting(_variables_at(kind, first["loc"]), _reason(first)) from None


def environment_with(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child process that has these settings, and no others."""
    ours = (PREFIX, DISPATCH_PREFIX, TEMPORAL_PREFIX)
    kept = {name: text for name, text in os.environ.items() if not name.upper().startswith(ours)}
    return kept | dict(variables)


def variables_of(kind: type[BaseSettings], field: str) -> tuple[str, ...]:
    """Return the variables that a field is read from, in the order they are looked for."""
    config = kind.model_config
    prefix, target = config.get("env_prefix", ""), config.get("env_prefix_target", "variable")
    alias_prefix = prefix if target in {"alias", "all"} else ""
    names = [alias_prefix + alias for alias in _aliases(kind.model_fields[field])]
    if not names or config.get("populate_by_name") or config.get("validate_by_name"):
        names.append((prefix if target in {"variable", "all"} else "") + field)
    return tuple(name if config.get("case_sensitive") else name.upper() for name in names)


def _aliases(field: FieldInfo) -> list[str]:
    match field.validation_alias:
        case None:
            return []
        case str() as alias:
            return [alias]
        case AliasPath() as path:
            return [str(path.path[0])]
        case AliasChoices(choices=choices):
            return [each if isinstance(each, str) else str(each.path[0]) for each in choices]


def _variables_at(kind: type[BaseSettings], loc: tuple[int | str, ...]) -> str:
    """Return the variables to look at; a rule for several fields has no place: all of them."""
    fields = [name for name in kind.model_fields if not loc or loc[0] in _names(kind, name)]
    return ", ".join(_variable_set(kind, name, loc[1:]) for name in fields) or str(loc[0])


def _names(kind: type[BaseSettings], field: str) -> set[str]:
    """Return what pydantic may call a field: its name, or its alias where it has one."""
    return {field, *_aliases(kind.model_fields[field])}


def _variable_set(kind: type[BaseSettings], field: str, rest: tuple[int | str, ...]) -> str:
    """Return the variable that is set, or those that could be; `rest` leads into a nested value."""
    variables = variables_of(kind, field)
    delimiter = kind.model_config.get("env_nested_delimiter")
    if delimiter and rest:
        nested = (delimiter.join([name, *map(str, rest)]).upper() for name in variables)
        variables = (*nested, *variables)
    present = {name.upper() for name in os.environ}
    return next((name for name in variables if name.upper() in present), " or ".join(variables))


def _reason(error: ErrorDetails) -> str:
    """Return a validator's own words as they are, and those of pydantic without a capital."""
    raised = error.get("ctx", {}).get("error")
    if isinstance(raised, Exception):
        return str(raised)
    return error["msg"][:1].lower() + error["msg"][1:]
