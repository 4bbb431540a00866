"""The client: send a message through a relay, and return a reply for each recipient or raise."""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from msgspec import Struct

from penstock.integrations.smtp.errors import SendFailed
from penstock.integrations.smtp.pool import RelayPool
from penstock.integrations.smtp.relay import ClientLimits, RelayAddress
from penstock.integrations.smtp.reply import SmtpReply
from penstock.integrations.smtp.session import CLOSING
from penstock.integrations.smtp.transaction import make_transaction


class Sent(Struct, frozen=True):
    """One reply per recipient, in their order: that to RCPT if it was refused, else the last one.

    The last one may be a refusal too: its phase is `data` or `dot`. A struct, because there is one
    for every mail (ADR 0009).
    """

    replies: tuple[SmtpReply, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Connections to all relays now, and the total since the client was created."""

    open_count: int
    idle_count: int
    opened_total: int


class Client:
    """Sends messages from one event loop; `async with` closes it.

    `ehlo_name` is the name in the greeting to relays, by default that of this machine. `tls`
    replaces the system's certificates.
    """

    def __init__(
        self,
        *,
        ehlo_name: str | None = None,
        tls: ssl.SSLContext | None = None,
        limits: ClientLimits | None = None,
    ) -> None:
        self._ehlo_name = ehlo_name or _machine_name()
        self._tls = tls
        self._limits = limits or ClientLimits()
        self._pools: dict[str, RelayPool] = {}
        self._retired_total = 0  # Connections that retired pools have opened.
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def send(
        self,
        relay: RelayAddress,
        *,
        sender: str,
        recipients: Sequence[str],
        message: bytes,
        smtputf8: bool = False,
        timeout: float,
    ) -> Sent:
        """Send `message`, which has CRLF line ends, in one transaction.

        `timeout` is in seconds and covers everything: the wait for a connection, opening it, and
        the transaction. Raises InvalidInput before anything is sent, and SendFailed if there is no
        reply for the recipients. A message is never sent twice: a second connection is tried only
        if the relay closed the first while it was idle, before any reply to MAIL.
        """
        transaction = make_transaction(sender, recipients, message=message, smtputf8=smtputf8)
        until = asyncio.get_running_loop().time() + timeout
        pool = self._pool(relay)
        session = await pool.take(until=until)
        try:
            return Sent(await session.send(transaction, until=until))
        except SendFailed as failed:
            if session.messages == 1 or not _was_closed_idle(failed):
                raise
        finally:
            pool.give_back(session)
        session = await pool.take(until=until, is_new=True)
        try:
            return Sent(await session.send(transaction, until=until))
        finally:
            pool.give_back(session)

    def stats(self) -> Stats:
        """Return figures for metrics."""
        pools = self._pools.values()
        return Stats(
            open_count=sum(pool.open_count for pool in pools),
            idle_count=sum(pool.idle_count for pool in pools),
            opened_total=self._retired_total + sum(pool.opened_total for pool in pools),
        )

    async def close(self) -> None:
        """Close all connections; sends in progress and later ones fail as `closed`."""
        self._is_closed = True
        for pool in list(self._pools.values()):
            await pool.close()

    def _pool(self, relay: RelayAddress) -> RelayPool:
        if self._is_closed:
            raise SendFailed("connect", "closed", "the client is closed")
        pool = self._pools.get(relay.name)
        if pool is None or pool.relay != relay:
            if pool is not None:
                # The operator has changed the relay: what is open goes on with the old address.
                pool.retire()
                self._retired_total += pool.opened_total
            pool = RelayPool(relay, ehlo_name=self._ehlo_name, tls=self._tls, limits=self._limits)
            self._pools[relay.name] = pool
        return pool


def _was_closed_idle(failed: SendFailed) -> bool:
    """Say whether the relay had ended the session before it saw this message."""
    if failed.phase != "mail":
        return False
    return failed.kind == "closed" or (failed.reply is not None and failed.reply.code == CLOSING)


def _machine_name() -> str:
    name = socket.gethostname()
    return name if name.isascii() and name else "localhost"
