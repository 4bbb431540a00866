"""The environment: defaults, names and refusals."""

from datetime import timedelta
from pathlib import Path
from typing import Self

import pytest
from pydantic import AliasChoices, AliasPath, BaseModel, Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from penstock.base.errors import BadSetting
from penstock.base.settings import (
    Settings,
    environment_with,
    read_once,
    read_section,
    settings,
    variables_of,
)
from penstock.compose.kafka import KafkaSettings


@pytest.fixture(autouse=True)
def _no_variables_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, field in (Settings.model_fields | KafkaSettings.model_fields).items():
        alias = field.validation_alias
        variable = alias if isinstance(alias, str) else f"PENSTOCK_{name.upper()}"
        monkeypatch.delenv(variable, raising=False)


def test_an_empty_environment_gives_working_settings() -> None:
    """The first command of a new user must not need any variable."""
    found = read_section(Settings)

    assert found.database_url is None
    assert found.data_dir == Path(".penstock")
    assert (found.host, found.port) == ("127.0.0.1", 8080)
    assert (found.pool_size_min, found.pool_size_max) == (5, 20)
    assert found.payload_bytes_max == 262_144


def test_a_child_process_gets_the_given_settings_and_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A demo must not work on the database that the environment names."""
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", "postgresql://production")
    monkeypatch.setenv("DISPATCH_MAX_ATTEMPTS", "7")
    monkeypatch.setenv("TEMPORAL_API_KEY", "secret")
    monkeypatch.setenv("LANG", "C.UTF-8")

    found = environment_with({"PENSTOCK_LOG_LEVEL": "error"})

    assert {name: found.get(name) for name in ("LANG", "PENSTOCK_LOG_LEVEL")} == {
        "LANG": "C.UTF-8",
        "PENSTOCK_LOG_LEVEL": "error",
    }
    others = {"PENSTOCK_DATABASE_URL", "DISPATCH_MAX_ATTEMPTS", "TEMPORAL_API_KEY"}
    assert not found.keys() & others


@pytest.mark.covers("C28", "C29", "C30", "C31")
def test_retry_defaults_come_from_the_dispatch_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    by_default = read_section(Settings)
    monkeypatch.setenv("DISPATCH_MAX_ATTEMPTS", "7")
    monkeypatch.setenv("DISPATCH_BACKOFF_BASE_SECONDS", "1.5")
    monkeypatch.setenv("DISPATCH_BACKOFF_MAX_SECONDS", "60")
    monkeypatch.setenv("DISPATCH_BACKOFF_JITTER", "0")

    given = read_section(Settings)

    assert by_default.max_attempts == 5
    assert by_default.backoff_base == timedelta(seconds=30)
    assert by_default.backoff_max == timedelta(seconds=3600)
    assert by_default.backoff_jitter == 0.2
    assert given.max_attempts == 7
    assert given.backoff_base == timedelta(seconds=1.5)
    assert given.backoff_max == timedelta(seconds=60)
    assert given.backoff_jitter == 0


@pytest.mark.parametrize(
    ("given", "variable"),
    [
        ({"CA": "pyproject.toml"}, "PENSTOCK_KAFKA_CA"),
        ({"TLS": "true", "CA": "no/such/file.pem"}, "PENSTOCK_KAFKA_CA"),
        ({"USERNAME": "shop"}, "PENSTOCK_KAFKA_PASSWORD"),
        ({"PASSWORD": "secret"}, "PENSTOCK_KAFKA_USERNAME"),
        (
            {"USERNAME": "shop", "PASSWORD": "secret", "MECHANISM": "PLAIN"},
            "PENSTOCK_KAFKA_MECHANISM",
        ),
        ({"MECHANISM": "GSSAPI"}, "PENSTOCK_KAFKA_MECHANISM"),
    ],
)
def test_inconsistent_kafka_security_is_refused(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], variable: str
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(f"PENSTOCK_KAFKA_{name}", value)

    with pytest.raises(BadSetting) as refused:
        read_section(KafkaSettings)

    assert refused.value.name == variable
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PENSTOCK_PORT", "eighty"),
        ("PENSTOCK_PORT", "70000"),
        ("PENSTOCK_LOG_LEVEL", "loud"),
        ("PENSTOCK_LOG_FORMAT", "xml"),
        ("PENSTOCK_ADMIN_KEY", "short"),
        ("PENSTOCK_POOL_SIZE_MIN", "0"),
        ("PENSTOCK_POOL_SIZE_MAX", "1"),
        ("PENSTOCK_POLL_INTERVAL_SECONDS", "0"),
        ("PENSTOCK_POLL_INTERVAL_SECONDS", "soon"),
        ("PENSTOCK_SHUTDOWN_GRACE_SECONDS", "-1"),
        ("PENSTOCK_SHUTDOWN_GRACE_SECONDS", "nan"),
        ("PENSTOCK_SHUTDOWN_GRACE_SECONDS", "inf"),
        ("PENSTOCK_PAYLOAD_BYTES_MAX", "-1"),
        ("DISPATCH_MAX_ATTEMPTS", "0"),
        ("DISPATCH_MAX_ATTEMPTS", "2.5"),
    ],
)
def test_a_wrong_value_is_refused_with_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)

    with pytest.raises(BadSetting) as caught:
        read_section(Settings)

    assert caught.value.name == variable
    assert caught.value.reason


@pytest.mark.covers("C40")
@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DISPATCH_BACKOFF_BASE_SECONDS", "0"),
        ("DISPATCH_BACKOFF_BASE_SECONDS", "-3"),
        ("DISPATCH_BACKOFF_MAX_SECONDS", "29"),
        ("DISPATCH_BACKOFF_JITTER", "1.1"),
        ("DISPATCH_BACKOFF_JITTER", "-0.1"),
        ("DISPATCH_BACKOFF_JITTER", "nan"),
    ],
)
def test_an_invalid_backoff_is_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    """A cap below the base or a negative wait would turn retries into a flood."""
    monkeypatch.setenv(variable, value)

    with pytest.raises(BadSetting) as caught:
        read_section(Settings)

    assert caught.value.name == variable


def test_a_refusal_does_not_contain_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message goes to a terminal and into logs."""
    monkeypatch.setenv("PENSTOCK_ADMIN_KEY", "hunter2")

    with pytest.raises(BadSetting) as caught:
        read_section(Settings)

    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(caught.value.__cause__)


def test_secrets_are_hidden_when_settings_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", "postgresql://u:hunter2@h/d")
    monkeypatch.setenv("PENSTOCK_ADMIN_KEY", "hunter2-hunter2-hunter2")

    assert "hunter2" not in repr(read_section(Settings))


def test_the_environment_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two parts of one process must not see two different settings."""
    read_once.cache_clear()
    first = settings()
    monkeypatch.setenv("PENSTOCK_PORT", "9999")

    second = settings()

    read_once.cache_clear()
    assert second is first


class Smtp(BaseModel):
    """A value with parts."""

    port: int = 25


class MailSettings(BaseSettings):
    """A section of another package: its own prefix, aliases, nested values, a rule for two."""

    model_config = SettingsConfigDict(env_prefix="ACME_", env_nested_delimiter="__")

    retries: int = 3
    sender: str = Field(default="", validation_alias="MAIL_SENDER", max_length=20)
    reply_to: str = Field(default="", alias="mail_reply_to", max_length=20)
    host: int = Field(default=0, validation_alias=AliasChoices("ACME_HOST_ID", "SMTP_HOST_ID"))
    first: int = Field(default=0, validation_alias=AliasPath("ACME_LIST", 0))
    ports: list[int] = []
    smtp: Smtp = Smtp()

    @model_validator(mode="after")
    def _replies_have_a_sender(self) -> Self:
        if self.reply_to and not self.sender:
            raise ValueError("MAIL_REPLY_TO needs MAIL_SENDER")
        return self


class TokenSettings(BaseSettings):
    """A section whose variable has no default, and may also be given by the field's name."""

    model_config = SettingsConfigDict(env_prefix="ACME_", populate_by_name=True)

    token: int = Field(validation_alias="TOKEN_ID")


ALL_OF_MAIL = (
    "ACME_RETRIES, MAIL_SENDER, MAIL_REPLY_TO, ACME_HOST_ID or SMTP_HOST_ID, ACME_LIST, "
    "ACME_PORTS, ACME_SMTP"
)
NO_INTEGER = "input should be a valid integer, unable to parse string as an integer"


@pytest.mark.parametrize(
    ("section", "given", "message"),
    [
        (MailSettings, {"ACME_RETRIES": "x"}, f"ACME_RETRIES: {NO_INTEGER}"),
        (
            MailSettings,
            {"MAIL_SENDER": "x" * 21},
            "MAIL_SENDER: string should have at most 20 characters",
        ),
        (
            MailSettings,
            {"MAIL_REPLY_TO": "x" * 21},
            "MAIL_REPLY_TO: string should have at most 20 characters",
        ),
        (MailSettings, {"ACME_HOST_ID": "x"}, f"ACME_HOST_ID: {NO_INTEGER}"),
        (MailSettings, {"SMTP_HOST_ID": "x"}, f"SMTP_HOST_ID: {NO_INTEGER}"),
        (MailSettings, {"ACME_LIST": '["x"]'}, f"ACME_LIST: {NO_INTEGER}"),
        (MailSettings, {"ACME_PORTS": "25, 26"}, "ACME_PORTS: is not valid JSON"),
        (MailSettings, {"ACME_PORTS": '[25, "x"]'}, f"ACME_PORTS: {NO_INTEGER}"),
        (MailSettings, {"ACME_SMTP__PORT": "x"}, f"ACME_SMTP__PORT: {NO_INTEGER}"),
        (MailSettings, {"ACME_SMTP": '{"port": "x"}'}, f"ACME_SMTP: {NO_INTEGER}"),
        (
            MailSettings,
            {"MAIL_REPLY_TO": "a@b"},
            f"{ALL_OF_MAIL}: MAIL_REPLY_TO needs MAIL_SENDER",
        ),
        (TokenSettings, {}, "TOKEN_ID or ACME_TOKEN: field required"),
        (TokenSettings, {"ACME_TOKEN": "x"}, f"ACME_TOKEN: {NO_INTEGER}"),
    ],
)
def test_a_wrong_setting_of_another_package_is_refused_with_its_own_name(
    monkeypatch: pytest.MonkeyPatch,
    *,
    section: type[BaseSettings],
    given: dict[str, str],
    message: str,
) -> None:
    """A company's variables have the company's prefix, and its rules say what they say."""
    for name, value in given.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(BadSetting) as caught:
        read_section(section)

    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("section", "field", "variables"),
    [
        (Settings, "port", ("PENSTOCK_PORT",)),
        (MailSettings, "retries", ("ACME_RETRIES",)),
        (MailSettings, "reply_to", ("MAIL_REPLY_TO",)),
        (MailSettings, "host", ("ACME_HOST_ID", "SMTP_HOST_ID")),
        (MailSettings, "first", ("ACME_LIST",)),
        (TokenSettings, "token", ("TOKEN_ID", "ACME_TOKEN")),
    ],
)
def test_the_variables_of_a_field_are_those_that_are_read(
    section: type[BaseSettings], field: str, variables: tuple[str, ...]
) -> None:
    assert variables_of(section, field) == variables


def test_a_choice_is_named_as_it_must_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """SCRAM-SHA-512 in small letters would be refused too."""
    monkeypatch.setenv("PENSTOCK_KAFKA_MECHANISM", "GSSAPI")

    with pytest.raises(BadSetting, match="'SCRAM-SHA-512'"):
        read_section(KafkaSettings)
