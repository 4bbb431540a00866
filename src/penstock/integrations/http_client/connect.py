"""Open a connection to an address that has been checked, and to no other."""

import asyncio
import os
import ssl
from collections.abc import Sequence
from ipaddress import ip_address

from penstock.base.errors import CallFailed
from penstock.integrations.http_client.connection import Connection
from penstock.integrations.http_client.failure import failure, within
from penstock.integrations.http_client.target import Target

TRIES_MAX = 4  # A name may have dozens of addresses; the fifth is hardly better than four.


async def connect(
    connection: Connection,
    target: Target,
    addresses: Sequence[str],
    *,
    tls: ssl.SSLContext,
    until: float,
) -> None:
    """Open `connection` to one of the checked `addresses`, or drop it and raise CallFailed."""
    try:
        transport = await _reach_any(connection, target.port, addresses[:TRIES_MAX], until=until)
        if target.is_tls:
            await _secure(connection, transport, target.host, tls=tls, until=until)
    except BaseException:
        connection.drop()
        raise


async def _reach_any(
    connection: Connection, port: int, addresses: Sequence[str], *, until: float
) -> asyncio.Transport:
    """Try one address after the other; each gets its share of the time that is left."""
    loop = asyncio.get_running_loop()
    *others, last = addresses
    for tried, address in enumerate(others):
        share = (until - loop.time()) / (len(addresses) - tried)
        try:
            return await _reach(connection, port, address, until=loop.time() + share)
        except CallFailed as failed:
            if failed.kind not in ("connect", "timeout"):
                raise
    return await _reach(connection, port, last, until=until)


async def _reach(
    connection: Connection, port: int, address: str, *, until: float
) -> asyncio.Transport:
    """Connect to an address as it is written: there is no name in it, so nothing is looked up."""
    loop = asyncio.get_running_loop()
    async with within(until, "connecting"):
        try:
            transport, _ = await loop.create_connection(lambda: connection, address, port)
        except OSError as refused:
            raise failure("connect", _told(refused)) from refused
    _check_peer(transport, address)
    return transport


def _check_peer(transport: asyncio.Transport, address: str) -> None:
    """Make sure of what the loop has done with the address: ask the socket where it ended up."""
    peer = transport.get_extra_info("peername")
    if peer is None:
        raise failure("connect", "the connection was closed at once")
    if ip_address(peer[0]) != ip_address(address):
        raise failure("refused_address", "the connection led to another address")


async def _secure(
    connection: Connection,
    transport: asyncio.Transport,
    host: str,
    *,
    tls: ssl.SSLContext,
    until: float,
) -> None:
    """Agree on TLS with the host by its name, whatever its address."""
    if connection.is_over:
        # It has been closed, or has spoken first. The loops do different things with such a one.
        raise failure("tls", "no agreement on TLS: the connection was closed at once")
    loop = asyncio.get_running_loop()
    async with within(until, "agreeing on TLS"):
        try:
            secured = await loop.start_tls(transport, connection, tls, server_hostname=host)
        except ssl.SSLCertVerificationError as refused:
            reason = f"the certificate is refused: {refused.verify_message}"
            raise failure("tls", reason) from refused
        except OSError as failed:
            raise failure("tls", f"no agreement on TLS: {_told(failed)}") from failed
    if secured is None:
        raise failure("tls", "no agreement on TLS: the connection was closed")
    connection.secured(secured)


def _told(failure: OSError) -> str:
    """Say what the system says, without the address that it may repeat."""
    if isinstance(failure, ssl.SSLError) and failure.reason:
        return failure.reason.replace("_", " ").lower()
    if failure.errno is not None:
        return os.strerror(failure.errno).lower()
    return type(failure).__name__
