"""The environment: defaults, names and refusals."""

from datetime import timedelta
from pathlib import Path

import pytest

from penstock.base.errors import BadSetting
from penstock.base.settings import Settings, read_once, read_section, settings
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
