"""Shared steps of the client's tests."""

import asyncio
import select
import socket
import ssl
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class FollowingUp:
    """A server in a thread: what it sends arrives while the test's event loop stands still."""

    url: str
    follow_up: Callable[[], None]


@contextmanager
def following_up(behind: bytes | None, *, tls: ssl.SSLContext | None) -> Generator[FollowingUp]:
    """Run a server that numbers its responses, one connection at a time.

    After `follow_up()` the first connection gets `behind`, or its end for None.
    """
    may_follow = threading.Event()

    def serve() -> None:
        with suppress(OSError):  # A test that has failed closes the listener.
            first = _accept(listener, tls)
            _answer(first, b"1")
            may_follow.wait(PATIENCE)
            if behind is None:
                first.shutdown(socket.SHUT_WR)
            else:
                first.sendall(behind)
            second = _accept(listener, tls)
            _answer(second, b"2")
            first.close()
            second.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE)
        thread = threading.Thread(target=serve)
        thread.start()
        scheme = "http" if tls is None else "https"
        yield FollowingUp(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/", may_follow.set)
        thread.join(PATIENCE)


def _accept(listener: socket.socket, tls: ssl.SSLContext | None) -> socket.socket:
    connection, _ = listener.accept()
    connection.settimeout(PATIENCE)
    return connection if tls is None else tls.wrap_socket(connection, server_side=True)


def _answer(connection: socket.socket, body: bytes) -> None:
    connection.recv(65_536)  # A request of the tests arrives in one piece.
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


def block_until_readable(client: Client) -> None:
    """Wait without the event loop until something has arrived on the client's one connection."""
    (connection,) = client._pool._open
    assert connection._transport is not None
    fd = connection._transport.get_extra_info("socket").fileno()
    assert select.select([fd], [], [], PATIENCE)[0], "nothing has arrived"
