"""The Kafka cluster that domains read from and publish to. Needs the extra `kafka`."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Self, TypeAlias

from pydantic import FilePath, SecretStr, model_validator
from pydantic_settings import BaseSettings

from penstock.base.errors import BadSetting, MissingExtra
from penstock.base.settings import SECTION, section
from penstock.contract import Resources, Service
from penstock.integrations.kafka.options import Options, security_options

# Gets the values of messages with their places; returns for each why it can never be accepted.
AcceptMessages: TypeAlias = Callable[
    [Sequence[tuple[bytes | None, str]]], Awaitable[Sequence[str | None]]
]


class KafkaSettings(BaseSettings):
    """Which brokers, and how to connect to them."""

    model_config = SECTION

    kafka_bootstrap: str | None = None
    """Brokers, as `host:9092`; several are separated by commas."""
    kafka_tls: bool = False
    """Whether to connect to brokers with TLS, and verify their certificates and names."""
    kafka_ca: FilePath | None = None
    """File of certificates (PEM) of the authority that signs the brokers' certificates. Absent: the
    system's authorities."""
    kafka_username: str | None = None
    """Account at the brokers (SASL)."""
    kafka_password: SecretStr | None = None
    """Password of the account."""
    kafka_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    """How the password is proven. `PLAIN` sends it to the broker, so it needs TLS."""

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.kafka_ca is not None and not self.kafka_tls:
            raise BadSetting("PENSTOCK_KAFKA_CA", "has no effect without PENSTOCK_KAFKA_TLS")
        if self.kafka_username is None and self.kafka_password is not None:
            raise BadSetting("PENSTOCK_KAFKA_USERNAME", "is needed with PENSTOCK_KAFKA_PASSWORD")
        if self.kafka_username is not None and self.kafka_password is None:
            raise BadSetting("PENSTOCK_KAFKA_PASSWORD", "is needed with PENSTOCK_KAFKA_USERNAME")
        has_account = self.kafka_username is not None
        if has_account and self.kafka_mechanism == "PLAIN" and not self.kafka_tls:
            raise BadSetting(
                "PENSTOCK_KAFKA_MECHANISM",
                "PLAIN sends the password in clear text: it needs PENSTOCK_KAFKA_TLS",
            )
        return self


def require_bootstrap(reason: str = "is not set") -> str:
    """Return the brokers' addresses; raises BadSetting with `reason` where there are none."""
    bootstrap = section(KafkaSettings).kafka_bootstrap
    if bootstrap is None:
        raise BadSetting("PENSTOCK_KAFKA_BOOTSTRAP", reason)
    return bootstrap


def connection_options() -> Options:
    """Return the client options for TLS and the account."""
    chosen = section(KafkaSettings)
    password = chosen.kafka_password
    return security_options(
        tls=chosen.kafka_tls,
        ca=chosen.kafka_ca,
        mechanism=chosen.kafka_mechanism,
        username=chosen.kafka_username,
        password=None if password is None else password.get_secret_value(),
    )


def make_consumer(
    resources: Resources, accept: AcceptMessages, *, topic: str, group: str, dead_topic: str
) -> Service:
    """Return the service that accepts a topic's messages; raises BadSetting or MissingExtra."""
    bootstrap = require_bootstrap()
    try:
        from penstock.integrations.kafka.consumer import (  # noqa: PLC0415  An extra.
            Consumer,
            Source,
        )
    except ModuleNotFoundError as absent:
        raise MissingExtra("kafka", "PENSTOCK_KAFKA_BOOTSTRAP") from absent
    source = Source(
        bootstrap=bootstrap,
        topic=topic,
        group=group,
        dead_topic=dead_topic,
        options=connection_options(),
    )
    consumer = Consumer(source, accept, log=resources.log, meter=resources.meter)
    return Service(name="consumer", run=consumer.run)
