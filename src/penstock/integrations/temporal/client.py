"""A connection to Temporal: its address, and TLS and API key from Temporal's own environment."""

import asyncio
import re
from datetime import timedelta
from ipaddress import ip_address

from temporalio.client import Client
from temporalio.envconfig import ClientConfigProfile
from temporalio.service import GrpcCompression, RetryConfig

from penstock.base.errors import BadSetting
from penstock.integrations.temporal.errors import FAILURES, TemporalFailed, translate

DEFAULT_TARGET = "localhost:7233"

# Which variables an address may come from, in errors about it.
TARGET = "TEMPORAL_TARGET"
ADDRESS = "TEMPORAL_ADDRESS, or address in Temporal's configuration file"

_HOST = re.compile(r"[\w-]+(\.[\w-]+)*\.?")
PORT_MAX = 65_535
# The SDK's own timeout ends before the first call to the server, which it repeats for 30 seconds.
CONNECT_TIMEOUT = timedelta(seconds=10)
# A caller repeats a failed call by itself, so the SDK repeats it only over a short interruption.
RETRIES = RetryConfig(max_interval_millis=500, max_elapsed_time_millis=2_000, max_retries=5)


async def connect(
    target: str | None = None, namespace: str | None = None, *, is_lazy: bool = False
) -> Client:
    """Return a client; a lazy one connects at its first call, and cannot run workers.

    Without `target`, the address is that of Temporal's environment or configuration file, else
    localhost:7233. Raises BadSetting for an invalid address or configuration, and TemporalFailed.
    """
    profile = _load_profile()
    address = target or profile.address or DEFAULT_TARGET
    name = ADDRESS if profile.address and not target else TARGET
    _check_address(name, address)
    options = profile.to_client_connect_config()
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT.total_seconds()):
            return await Client.connect(
                address,
                namespace=namespace or profile.namespace or "default",
                api_key=options.get("api_key"),
                tls=options.get("tls"),
                rpc_metadata=options.get("rpc_metadata", {}),
                retry_config=RETRIES,
                connect_timeout=CONNECT_TIMEOUT,
                lazy=is_lazy,
                # On loopback, compression costs both sides more than it saves.
                grpc_compression=(
                    GrpcCompression.NONE if is_local(address) else GrpcCompression.GZIP
                ),
            )
    except TimeoutError:
        reason = f"{name} {address}: no answer within {CONNECT_TIMEOUT.seconds} s"
        raise TemporalFailed("unavailable", reason) from None
    except FAILURES as failure:
        raise translate(failure, to=f"{name} {address}") from failure


def check_environment(target: str | None = None) -> None:
    """Raise BadSetting for an address in the environment that is not one; `target` comes first.

    Temporal's configuration file is not read: it may belong to others, and change later.
    """
    profile = _load_profile(disable_file=True)
    if target or profile.address:
        _check_address(TARGET if target else ADDRESS, target or profile.address or "")


def is_local(address: str) -> bool:
    """Return whether an address such as `localhost:7233` is on this machine."""
    host = address.rsplit(":", 1)[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _check_address(name: str, address: str) -> None:
    """Refuse what is not host:port; the SDK connects to port 80, or fails at the first call."""
    host, _, port = address.rpartition(":")
    is_port = port.isascii() and port.isdigit() and 1 <= int(port) <= PORT_MAX
    if not (is_port and _is_host(host)):
        shown = address.rpartition("@")[2]  # In front of it may be a password.
        raise BadSetting(name, f"must be host:port, such as {DEFAULT_TARGET}, and not {shown!r}")


def _is_host(host: str) -> bool:
    """Return whether this is a name, an IPv4 address, or an IPv6 address in brackets."""
    if host.startswith("[") and host.endswith("]"):
        try:
            return ip_address(host[1:-1]).version == 6
        except ValueError:
            return False
    return _HOST.fullmatch(host) is not None


def _load_profile(*, disable_file: bool = False) -> ClientConfigProfile:
    try:
        return ClientConfigProfile.load(disable_file=disable_file)
    except (RuntimeError, ValueError) as invalid:
        raise BadSetting("TEMPORAL_PROFILE, TEMPORAL_CONFIG_FILE", str(invalid)) from invalid
