"""A real SMTP server on loopback (aiosmtpd) that misbehaves on order, and records what it gets."""

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

HOST = "127.0.0.1"
ANSWERS_SECONDS_MAX = 10.0  # To wait for what a client is about to do.

# BANNER is the greeting, DOT the end of a message; the others are commands.
Step = Literal["BANNER", "EHLO", "STARTTLS", "AUTH", "MAIL", "RCPT", "DATA", "DOT", "RSET", "QUIT"]


@dataclass(kw_only=True)
class Order:
    """Misbehave at one step: reply this, or hang, or drop the connection (after the reply).

    With `when`, wait for that first.
    """

    reply: str | None
    drop: bool
    hang: bool
    when: asyncio.Event | None
    times: int
    argument: str  # Only if the command contains it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One message that was received up to its final dot, whether it was accepted or not."""

    sender: str
    recipients: tuple[str, ...]
    content: bytes
    options: tuple[str, ...]


@dataclass(kw_only=True)
class SmtpServer:
    """What the server offers, what it was ordered to do, and what it has seen."""

    port: int = 0
    extensions: list[str] = field(default_factory=lambda: ["PIPELINING", "ENHANCEDSTATUSCODES"])
    without: set[str] = field(default_factory=set)
    size_max: int = 1_000_000
    account: tuple[str, str] | None = None
    tls: ssl.SSLContext | None = None
    messages: list[Received] = field(default_factory=list)
    steps: Counter[str] = field(default_factory=Counter)
    connections_total: int = 0
    connections: "set[_Connection]" = field(default_factory=set)
    connections_peak: int = 0
    orders: list[tuple[Step, Order]] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def on(
        self,
        step: Step,
        reply: str | None = None,
        *,
        drop: bool = False,
        hang: bool = False,
        when: asyncio.Event | None = None,
        times: int = 1,
        argument: str = "",
    ) -> None:
        """Misbehave at the next `times` of this step."""
        self.orders.append(
            (
                step,
                Order(reply=reply, drop=drop, hang=hang, when=when, times=times, argument=argument),
            )
        )

    async def reached(self, step: Step, count: int = 1) -> None:
        """Wait until a client has come to a step this often."""
        async with asyncio.timeout(ANSWERS_SECONDS_MAX):
            while self.steps[step] < count:
                self._changed.clear()
                await self._changed.wait()

    async def emptied(self) -> None:
        """Wait until no client is connected."""
        async with asyncio.timeout(ANSWERS_SECONDS_MAX):
            while self.connections:
                self._changed.clear()
                await self._changed.wait()

    def drop_connections(self) -> None:
        """Close all connections without a word."""
        for connection in list(self.connections):
            connection.drop()

    def next_order(self, step: Step, argument: str) -> Order | None:
        """Return what was ordered for this step, once for each time."""
        for known, order in self.orders:
            if known == step and order.times > 0 and order.argument in argument:
                order.times -= 1
                return order
        return None

    def note(self, step: str) -> None:
        """Record a step."""
        self.steps[step] += 1
        self._changed.set()

    def note_connection(self, connection: "_Connection", *, is_open: bool) -> None:
        """Record that a connection was opened or closed."""
        if is_open:
            self.connections.add(connection)
            self.connections_total += 1
            self.connections_peak = max(self.connections_peak, len(self.connections))
        else:
            self.connections.discard(connection)
        self._changed.set()


@asynccontextmanager
async def serving(server: SmtpServer, *, is_tls: bool = False) -> AsyncGenerator[SmtpServer]:
    """Run the server on a free port of loopback; `is_tls` is TLS from the first byte."""
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(
        lambda: _Connection(server, is_tls=is_tls), HOST, 0, ssl=server.tls if is_tls else None
    )
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        server.drop_connections()
        await server.emptied()


class _Handler:
    """The hooks that aiosmtpd calls."""

    def __init__(self, server: SmtpServer) -> None:
        self.server = server

    async def handle_EHLO(  # noqa: N802, PLR0917  aiosmtpd's names.
        self, smtp: SMTP, session: Session, envelope: Envelope, hostname: str, lines: list[str]
    ) -> list[str]:
        del smtp, envelope
        session.host_name = hostname
        offered = [line for line in lines if line[4:].split()[0] not in self.server.without]
        last = offered.pop()
        added = [
            f"250-{name}" for name in self.server.extensions if name not in self.server.without
        ]
        return [*offered, *added, last]

    async def handle_DATA(  # noqa: N802  aiosmtpd's name.
        self, smtp: SMTP, session: Session, envelope: Envelope
    ) -> str:
        del session
        assert isinstance(smtp, _Connection)
        assert envelope.original_content is not None
        self.server.messages.append(
            Received(
                sender=envelope.mail_from or "",
                recipients=tuple(envelope.rcpt_tos),
                content=envelope.original_content,
                options=tuple(envelope.mail_options),
            )
        )
        return await smtp.obey("DOT", "") or "250 2.0.0 queued"


class _Connection(SMTP):
    """aiosmtpd's protocol, which asks for orders before each step."""

    def __init__(self, server: SmtpServer, *, is_tls: bool) -> None:
        self._server = server
        self._greeted = False
        self._stopped = asyncio.Event()
        super().__init__(
            _Handler(server),
            data_size_limit=server.size_max,
            enable_SMTPUTF8=True,
            hostname="relay.test",
            tls_context=None if is_tls else server.tls,
            authenticator=self._check_account,
            auth_require_tls=False,
            loop=asyncio.get_running_loop(),
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self not in self._server.connections:
            self._server.note_connection(self, is_open=True)
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._stopped.set()
        self._server.note_connection(self, is_open=False)
        super().connection_lost(error)

    def eof_received(self) -> bool:
        # The client has gone; aiosmtpd would keep its side open while a step hangs.
        self.drop()
        return False

    def drop(self) -> None:
        self._stopped.set()
        if self.transport is not None:
            cast("asyncio.Transport", self.transport).abort()
        # After a failed handshake nobody calls connection_lost.
        self._server.note_connection(self, is_open=False)

    async def obey(self, step: Step, argument: str | None) -> str | None:
        """Do what was ordered; return the ordered reply, or None to go on as usual."""
        self._server.note(step)
        order = self._server.next_order(step, argument or "")
        if order is None:
            return None
        if order.when is not None:
            await order.when.wait()
        if order.hang:
            await self._stopped.wait()
        if order.drop:
            if order.reply is not None:
                await super().push(order.reply)
            cast("asyncio.Transport", self.transport).close()
            await self._stopped.wait()
        return order.reply

    async def push(self, status: Any) -> None:
        if not self._greeted:
            self._greeted = True
            status = await self.obey("BANNER", "") or status
        if not self._stopped.is_set():
            await super().push(status)

    async def smtp_EHLO(self, hostname: str) -> None:  # noqa: N802  aiosmtpd's name.
        if (reply := await self.obey("EHLO", hostname)) is not None:
            await self.push(reply)
        else:
            await super().smtp_EHLO(hostname)

    async def smtp_STARTTLS(self, arg: str) -> None:  # noqa: N802  aiosmtpd's name.
        if (reply := await self.obey("STARTTLS", arg)) is not None:
            await self.push(reply)
        else:
            await super().smtp_STARTTLS(arg)

    async def smtp_AUTH(self, arg: str) -> None:  # noqa: N802  aiosmtpd's name.
        if (reply := await self.obey("AUTH", arg)) is not None:
            await self.push(reply)
        else:
            await super().smtp_AUTH(arg)

    async def smtp_MAIL(self, arg: str | None) -> None:  # noqa: N802  aiosmtpd's name.
        if (reply := await self.obey("MAIL", arg)) is not None:
            await self.push(reply)
        else:
            await super().smtp_MAIL(arg)

    async def smtp_RCPT(self, arg: str | None) -> None:  # noqa: N802  aiosmtpd's name.
        if (reply := await self.obey("RCPT", arg)) is not None:
            await self.push(reply)
        else:
            await super().smtp_RCPT(arg)

    async def smtp_DATA(self, arg: str) -> None:  # noqa: N802  aiosmtpd's name.
        if (reply := await self.obey("DATA", arg)) is not None:
            await self.push(reply)
        else:
            await super().smtp_DATA(arg)

    async def smtp_RSET(self, arg: str) -> None:  # noqa: N802  aiosmtpd's name.
        if (reply := await self.obey("RSET", arg)) is not None:
            await self.push(reply)
        else:
            await super().smtp_RSET(arg)

    async def smtp_QUIT(self, arg: str) -> None:  # noqa: N802  aiosmtpd's name.
        if (reply := await self.obey("QUIT", arg)) is not None:
            await self.push(reply)
        else:
            await super().smtp_QUIT(arg)

    def _check_account(  # noqa: PLR0917  aiosmtpd's order.
        self, smtp: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any
    ) -> AuthResult:
        del smtp, session, envelope, mechanism
        assert isinstance(data, LoginPassword)
        given = (data.login.decode(), data.password.decode())
        return AuthResult(success=given == self._server.account, handled=False)
