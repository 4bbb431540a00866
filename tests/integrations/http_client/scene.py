"""Shared steps of the client's tests."""

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
    parse_url,
    prepare_route,
)
from penstock.integrations.http_client.resolver import Lookup
from tests.receiver import PATIENCE, Receiver

# Tests use servers on loopback, which is refused by default.
LOOPBACK = Egress([ip_network("127.0.0.0/8"), ip_network("::1/128")])


def route_to(receiver: Receiver | str, *headers: tuple[str, str]) -> Route:
    url = receiver if isinstance(receiver, str) else receiver.url
    return prepare_route(parse_url(url), headers)


async def post(
    client: Client, receiver: Receiver | str, body: bytes = b"{}", *, timeout: float = PATIENCE
) -> Response:
    """Send a plain POST."""
    return await client.post(route_to(receiver), (), body, timeout=timeout)


async def get(client: Client, receiver: Receiver | str, *, timeout: float = PATIENCE) -> Response:
    """Send a plain GET."""
    return await client.get(route_to(receiver), timeout=timeout)


async def fail(
    client: Client,
    receiver: Receiver | str,
    kind: FailureKind,
    *,
    body: bytes = b"{}",
    timeout: float = PATIENCE,
) -> CallFailed:
    """Send a POST, expect a failure of this kind, and return it."""
    with pytest.raises(CallFailed) as caught:
        await post(client, receiver, body, timeout=timeout)
    assert caught.value.kind == kind, str(caught.value)
    return caught.value


def knowing(names: Mapping[str, Sequence[str]]) -> Lookup:
    """Return a lookup that knows only these names."""

    def look_up(host: str) -> Sequence[str]:
        if host not in names:
            raise OSError(None, "unknown in this test")
        return names[host]

    return look_up


async def next_iteration() -> None:
    """Run one iteration of the event loop."""
    turned = asyncio.Event()
    asyncio.get_running_loop().call_soon(turned.set)
    await turned.wait()
