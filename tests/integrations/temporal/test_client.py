"""The address, the namespace and the account come from the environment, as documented."""

import asyncio
from pathlib import Path

import pytest
from temporalio.service import GrpcCompression

from penstock.base.errors import BadSetting
from penstock.base.settings import read_section
from penstock.compose.temporal import TemporalSettings
from penstock.integrations.temporal.client import CONNECT_TIMEOUT, connect, is_local
from penstock.integrations.temporal.errors import TemporalFailed
from tests.ports import free_port
from tests.temporal_server import silent_server

PROFILE = """
[profile.default]
address = "file.test:7233"
namespace = "from-file"
api_key = "not a secret: tests have it"
"""


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TARGET", "ADDRESS", "NAMESPACE", "API_KEY", "TLS", "PROFILE"):
        monkeypatch.delenv(f"TEMPORAL_{name}", raising=False)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "absent.toml"))


async def address_of(monkeypatch: pytest.MonkeyPatch, **environment: str) -> tuple[str, str]:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    chosen = read_section(TemporalSettings)
    client = await connect(chosen.temporal_target, chosen.temporal_namespace, is_lazy=True)
    return client.service_client.config.target_host, client.namespace


@pytest.mark.covers("A77", "A78")
async def test_the_defaults_are_localhost_and_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await address_of(monkeypatch) == ("localhost:7233", "default")


async def test_target_is_stronger_than_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """TEMPORAL_ADDRESS is Temporal's own variable; a person who sets both means ours."""
    assert await address_of(monkeypatch, TEMPORAL_ADDRESS="other.test:1") == (
        "other.test:1",
        "default",
    )
    assert await address_of(
        monkeypatch, TEMPORAL_TARGET="mine.test:2", TEMPORAL_NAMESPACE="bank"
    ) == ("mine.test:2", "bank")


async def test_the_account_comes_from_temporals_own_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "temporal.toml"
    file.write_text(PROFILE, encoding="utf-8")
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(file))

    client = await connect(is_lazy=True)

    config = client.service_client.config
    assert (config.target_host, client.namespace) == ("file.test:7233", "from-file")
    assert config.api_key == "not a secret: tests have it"
    assert config.tls is True


async def test_an_invalid_configuration_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "temporal.toml"
    file.write_text("[profile", encoding="utf-8")
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(file))

    with pytest.raises(BadSetting, match="TEMPORAL_CONFIG_FILE"):
        await connect(is_lazy=True)


@pytest.mark.parametrize("name", ["TEMPORAL_TARGET", "TEMPORAL_ADDRESS"])
@pytest.mark.parametrize(
    "address",
    [
        "nonsense",
        "nonsense:",
        "nonsense:port",
        "nonsense:0",
        "nonsense:99999",
        "nonsense:7233/path",
        "http://nonsense:7233",
        ":7233",
        "::1:7233",
        "[::1:7233",
        "[nonsense]:7233",
        "non sense:7233",
        " ",
    ],
)
async def test_what_is_no_address_is_refused_with_its_variable(
    *, name: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a lazy client: the library would find out at its first call, or take port 80."""
    with pytest.raises(BadSetting) as refused:
        await address_of(monkeypatch, **{name: address})

    assert name in refused.value.name
    assert repr(address) in refused.value.reason


async def test_an_account_in_an_address_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadSetting) as refused:
        await address_of(monkeypatch, TEMPORAL_TARGET="ada:secret@temporal.test:7233")

    assert "temporal.test" in refused.value.reason
    assert "secret" not in refused.value.reason


@pytest.mark.parametrize(
    ("address", "compression"),
    [
        ("localhost:7233", GrpcCompression.NONE),
        ("127.0.0.9:7233", GrpcCompression.NONE),
        ("[::1]:7233", GrpcCompression.NONE),
        ("10.0.0.1:7233", GrpcCompression.GZIP),
        ("temporal.example.com:7233", GrpcCompression.GZIP),
    ],
)
async def test_calls_on_loopback_are_not_compressed(
    address: str, compression: GrpcCompression
) -> None:
    client = await connect(address, is_lazy=True)

    assert client.service_client.config.grpc_compression == compression
    assert is_local(address) == (compression is GrpcCompression.NONE)


async def test_a_server_that_does_not_answer_is_unavailable() -> None:
    address = f"127.0.0.1:{free_port()}"

    with pytest.raises(TemporalFailed) as failed:
        await connect(address)

    assert failed.value.kind == "unavailable"
    assert failed.value.reason.startswith(f"TEMPORAL_TARGET {address}: ")


async def test_a_server_that_accepts_and_never_answers_is_unavailable_after_the_timeout() -> None:
    """The SDK alone waits for three times as long."""
    async with silent_server() as address, asyncio.timeout(CONNECT_TIMEOUT.total_seconds() + 5):
        with pytest.raises(TemporalFailed, match="no answer within 10 s") as failed:
            await connect(address)

    assert failed.value.kind == "unavailable"
