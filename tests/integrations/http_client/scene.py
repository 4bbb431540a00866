"""What tests of the client do again and again."""

import asyncio
from collections.abc import Mapping, Sequence
from ipaddress import ip_network

import pytest

from penstock.base.errors import CallFailed
from penstock.integrations.http_client import (
    Client,
    Egress,
    FailureKind,
    Response,
    Route,
    parse_target,
    prepare_route,
)
from penstock.integrations.http_client.resolver import Lookup
from tests.receiver import PATIENCE, Receiver

# Tests talk to servers on loopback, which a client without orders never does.
LOOPBACK = Egress([ip_network("127.0.0.0/8"), ip_network("::1/128")])


def route_to(receiver: Receiver | str, *headers: tuple[str, str]) -> Route:
    url = receiver if isinstance(receiver, str) else receiver.url
    return prepare_route(parse_target(url), headers)


async def post(
    client: Client, receiver: Receiver | str, body: bytes = b"{}", *, timeout: float = PATIENCE
) -> Response:
    """Deliver with nothing special about it."""
    return await client.post(route_to(receiver), (), body, timeout=timeout)


async def fail(
    client: Client,
    receiver: Receiver | str,
    kind: FailureKind,
    *,
    body: bytes = b"{}",
    timeout: float = PATIENCE,
) -> CallFailed:
    """Deliver, expecting a failure of this kind, and return it."""
    with pytest.raises(CallFailed) as caught:
        await post(client, receiver, body, timeout=timeout)
    assert caught.value.kind == kind, str(caught.value)
    return caught.value


def knowing(names: Mapping[str, Sequence[str]]) -> Lookup:
    """Return a resolver that knows these names only."""

    def look_up(host: str) -> Sequence[str]:
        if host not in names:
            raise OSError(None, "unknown in this test")
        return names[host]

    return look_up


async def breathe() -> None:
    """Let everything else have a turn."""
    turned = asyncio.Event()
    asyncio.get_running_loop().call_soon(turned.set)
    await turned.wait()
