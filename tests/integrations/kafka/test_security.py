"""Brokers that ask for TLS and an account: with the right ones all works, with others nothing."""

import asyncio
from pathlib import Path

import pytest
import trustme
from structlog.testing import capture_logs

from penstock.base.errors import CallFailed
from penstock.base.log import get_logger
from penstock.base.settings import read_section
from penstock.compose.kafka import KafkaSettings
from penstock.integrations.kafka.options import Options, security_options
from penstock.integrations.kafka.publisher import Publisher
from penstock.postgres.pool import Pool
from tests.e2e.command import penstock
from tests.integrations.kafka.scene import PATIENCE, Stream, event, until_accepted
from tests.integrations.kafka.test_process import CONSUME, at
from tests.kafka_broker import PASSWORD, USERNAME, RealBroker


def account(
    broker: RealBroker,
    *,
    ca: Path | None = None,
    mechanism: str = "SCRAM-SHA-512",
    password: str = PASSWORD,
) -> Options:
    return security_options(
        tls=True, ca=ca or broker.ca, mechanism=mechanism, username=USERNAME, password=password
    )


async def publish(broker: RealBroker, stream: Stream, options: Options, *, within_ms: int) -> None:
    """Publish a message through the secure listener."""
    options = {**options, "delivery.timeout.ms": within_ms}
    out = Publisher(broker.secure_bootstrap, stream.topic, log=get_logger(), options=options)
    try:
        async with asyncio.timeout(PATIENCE):
            await out.publish(b"k", b"v")
    finally:
        await out.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_an_account_publishes_by_tls(
    guarded: RealBroker, stream: Stream, mechanism: str
) -> None:
    await publish(guarded, stream, account(guarded, mechanism=mechanism), within_ms=30_000)

    (found,) = stream.read(stream.topic, 1)
    assert found.value() == b"v"


async def test_a_wrong_password_is_reported_and_not_logged(
    guarded: RealBroker, stream: Stream
) -> None:
    with capture_logs() as lines, pytest.raises(CallFailed):
        await publish(guarded, stream, account(guarded, password="wrong-one"), within_ms=2_000)

    assert "_AUTHENTICATION" in {line.get("code") for line in lines}
    assert "wrong-one" not in str(lines)


async def test_a_certificate_of_an_unknown_authority_is_refused(
    guarded: RealBroker, stream: Stream, tmp_path: Path
) -> None:
    stranger = tmp_path / "stranger.pem"
    trustme.CA().cert_pem.write_to_path(stranger)

    with capture_logs() as lines, pytest.raises(CallFailed):
        await publish(guarded, stream, account(guarded, ca=stranger), within_ms=2_000)

    assert "_SSL" in {line.get("code") for line in lines}


async def test_the_command_consumes_with_the_account_of_its_settings(
    dsn: str, db: Pool, *, guarded: RealBroker, stream: Stream, tmp_path: Path
) -> None:
    stream.put(event(id="e1"), b"no event")
    environment = at(stream, dsn) | {
        "PENSTOCK_KAFKA_BOOTSTRAP": guarded.secure_bootstrap,
        "PENSTOCK_KAFKA_TLS": "true",
        "PENSTOCK_KAFKA_CA": str(guarded.ca),
        "PENSTOCK_KAFKA_USERNAME": USERNAME,
        "PENSTOCK_KAFKA_PASSWORD": PASSWORD,
    }
    with penstock(*CONSUME, folder=tmp_path, environment=environment) as consume:
        await until_accepted(db, 1)
        await stream.until_committed(2)
        assert consume.stop() == 0

    (dead,) = stream.read(stream.dead_topic, 1)
    assert dead.value() == b"no event"


def test_the_password_is_not_shown_with_the_settings() -> None:
    found = read_section(
        KafkaSettings,
        kafka_tls=True,
        kafka_username=USERNAME,
        kafka_password=PASSWORD,
        kafka_mechanism="PLAIN",
    )

    assert PASSWORD not in repr(found)
