"""The environment, read once and checked at start. No other module looks at it."""

from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    FilePath,
    IPvAnyNetwork,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from penstock.base.errors import BadSetting

PREFIX = "PENSTOCK_"


def _seconds(value: object) -> object:
    """Read a bare number, which is all that an environment can hold, as seconds."""
    try:
        return timedelta(seconds=float(value)) if isinstance(value, str) else value
    except (OverflowError, ValueError):
        raise ValueError("is not a number of seconds") from None


def _listed(value: object) -> object:
    """Read a list with commas or spaces between its parts."""
    return value.replace(",", " ").split() if isinstance(value, str) else value


Seconds = Annotated[timedelta, BeforeValidator(_seconds)]
Networks = Annotated[tuple[IPvAnyNetwork, ...], NoDecode, BeforeValidator(_listed)]
Ports = Annotated[
    tuple[Annotated[int, Field(ge=1, le=65535)], ...], NoDecode, BeforeValidator(_listed)
]


class Settings(BaseSettings):
    """One field per variable; the variable's name is the field's with the prefix, or its alias."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
        populate_by_name=True,
    )

    # Absent: PostgreSQL is embedded in the data folder. Secret, because it may hold a password.
    database_url: SecretStr | None = None
    data_dir: Path = Path(".penstock")
    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    admin_key: SecretStr | None = Field(default=None, min_length=16)
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["console", "json"] = "console"
    pool_size_min: int = Field(default=5, ge=1, le=1000)
    pool_size_max: int = Field(default=20, ge=1, le=1000)
    payload_bytes_max: int = Field(default=262_144, ge=2, le=64 * 1024 * 1024)
    poll_interval: Seconds = Field(
        default=timedelta(seconds=1),
        gt=timedelta(0),
        le=timedelta(minutes=1),
        validation_alias="PENSTOCK_POLL_INTERVAL_SECONDS",
    )
    shutdown_grace: Seconds = Field(
        default=timedelta(seconds=20),
        ge=timedelta(0),
        le=timedelta(hours=1),
        validation_alias="PENSTOCK_SHUTDOWN_GRACE_SECONDS",
    )

    # Seals secrets at rest. Absent: made once and kept in the data folder.
    secret_key: SecretStr | None = None
    # Where webhooks may go besides public addresses, as CIDRs, and to which ports; none: all.
    egress_allow: Networks = ()
    egress_ports: Ports = ()
    # Absent: limits and breakers are those of one process.
    redis_url: SecretStr | None = None
    kafka_bootstrap: str | None = None
    kafka_topic: str = "events.pending"
    kafka_group: str = "dispatch-workers"
    kafka_dead_topic: str = "events.dead"
    # Certificates and names of brokers are verified, by the system's authorities or by these.
    kafka_tls: bool = False
    kafka_ca: FilePath | None = None
    kafka_username: str | None = None
    kafka_password: SecretStr | None = None
    kafka_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    # `kafka`: POST /events publishes, and `penstock kafka consume` accepts.
    events_to: Literal["database", "kafka"] = "database"

    # How a new lane repeats until its row says otherwise.
    max_attempts: int = Field(default=5, ge=1, le=1000, validation_alias="DISPATCH_MAX_ATTEMPTS")
    backoff_base: Seconds = Field(
        default=timedelta(seconds=30),
        gt=timedelta(0),
        validation_alias="DISPATCH_BACKOFF_BASE_SECONDS",
    )
    backoff_max: Seconds = Field(
        default=timedelta(hours=1),
        gt=timedelta(0),
        validation_alias="DISPATCH_BACKOFF_MAX_SECONDS",
    )
    backoff_jitter: float = Field(
        default=0.2, ge=0, le=1, allow_inf_nan=False, validation_alias="DISPATCH_BACKOFF_JITTER"
    )

    @model_validator(mode="after")
    def _bounds_are_in_order(self) -> Self:
        if self.pool_size_max < self.pool_size_min:
            raise BadSetting("PENSTOCK_POOL_SIZE_MAX", "is less than PENSTOCK_POOL_SIZE_MIN")
        if self.events_to == "kafka" and self.kafka_bootstrap is None:
            raise BadSetting(
                "PENSTOCK_KAFKA_BOOTSTRAP", "is needed when PENSTOCK_EVENTS_TO is kafka"
            )
        if self.backoff_max < self.backoff_base:
            raise BadSetting(
                "DISPATCH_BACKOFF_MAX_SECONDS", "is less than DISPATCH_BACKOFF_BASE_SECONDS"
            )
        return self

    @model_validator(mode="after")
    def _kafka_is_secured_as_meant(self) -> Self:
        if self.kafka_ca is not None and not self.kafka_tls:
            raise BadSetting("PENSTOCK_KAFKA_CA", "is of no use without PENSTOCK_KAFKA_TLS")
        if self.kafka_username is None and self.kafka_password is not None:
            raise BadSetting("PENSTOCK_KAFKA_USERNAME", "is needed with PENSTOCK_KAFKA_PASSWORD")
        if self.kafka_username is not None and self.kafka_password is None:
            raise BadSetting("PENSTOCK_KAFKA_PASSWORD", "is needed with PENSTOCK_KAFKA_USERNAME")
        has_account = self.kafka_username is not None
        if has_account and self.kafka_mechanism == "PLAIN" and not self.kafka_tls:
            raise BadSetting(
                "PENSTOCK_KAFKA_MECHANISM", "PLAIN tells the password: it needs PENSTOCK_KAFKA_TLS"
            )
        return self


@cache
def settings() -> Settings:
    """Return the settings of this process; raises BadSetting on the first wrong variable."""
    return read_settings()


def read_settings(**overrides: Any) -> Settings:
    """Read the environment anew; `overrides` (by field name, such as CLI options) win over it."""
    try:
        return Settings(**overrides)
    except ValidationError as refused:
        first = refused.errors(include_url=False, include_input=False)[0]
        raise BadSetting(_variable(str(first["loc"][0])), _reason(first["msg"])) from None


def _variable(location: str) -> str:
    """Name the variable: pydantic reports the alias where there is one, else the field."""
    if location.isupper():
        return location
    alias = Settings.model_fields[location].validation_alias
    return alias if isinstance(alias, str) else PREFIX + location.upper()


def _reason(message: str) -> str:
    return message.removeprefix("Value error, ").lower()
