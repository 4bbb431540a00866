"""A session after EHLO, STARTTLS and AUTH: one transaction at a time, pipelined if possible.

aiosmtplib opens the connection and hands its transport over to this protocol, because it sends
one command per round trip and drops replies that arrive together.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from penstock.integrations.smtp.errors import FailureKind, SendFailed
from penstock.integrations.smtp.reply import (
    MalformedReply,
    RawReply,
    ReplyReader,
    SmtpPhase,
    SmtpReply,
    make_reply,
)
from penstock.integrations.smtp.transaction import SmtpTransaction, encode_message

# The limits of RFC 5321, section 4.5.3.2; a caller's own timeout is usually shorter.
COMMAND_SECONDS_MAX = 300.0
DOT_SECONDS_MAX = 600.0
CHECK_SECONDS_MAX = 5.0  # A live server answers RSET at once; a dead one costs no more than this.
QUIT_SECONDS_MAX = 2.0  # Nothing depends on the reply.
CLOSING = 421
START_INPUT = 354
REASONS: dict[FailureKind, str] = {
    "timeout": "timed out",
    "closed": "the connection was lost",
    "malformed": "not an SMTP reply",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What the server offered in its reply to EHLO. `size_max` is in bytes; None is no limit."""

    is_pipelining: bool
    has_size: bool
    size_max: int | None
    has_smtputf8: bool
    has_8bitmime: bool


class Session(asyncio.Protocol):
    """An open connection; `on_closed` is called once, when it can no longer be used."""

    def __init__(
        self,
        transport: asyncio.Transport,
        features: Features,
        *,
        on_closed: Callable[["Session"], None],
    ) -> None:
        self.messages = 0  # Transactions begun.
        self.idle_since = 0.0
        self.is_closed = False
        self._transport = transport
        self._features = features
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._reader = ReplyReader()
        self._replies: list[RawReply] = []
        self._expected = 0
        self._waiter: asyncio.Future[FailureKind | None] | None = None
        self._needs_reset = False
        self._is_unsent = False  # Written bytes wait in this process.
        # A TLS transport does not say whether its bytes have left: uvloop's never resumes.
        self._is_encrypted = transport.get_extra_info("sslcontext") is not None
        transport.set_protocol(self)
        # With a limit of 0, pause_writing and resume_writing say whether all bytes have left.
        transport.set_write_buffer_limits(high=0)

    async def send(self, transaction: SmtpTransaction, *, until: float) -> tuple[SmtpReply, ...]:
        """Send one message and return a reply for each recipient; raises SendFailed."""
        self._check_features(transaction)
        self.messages += 1
        refused, data = await self._begin(transaction, until=until)
        if data is None:
            return tuple(refused.values())
        if data[0] == START_INPUT:
            final = await self._send_message(transaction, refused, until=until)
        else:
            final = _reply("data", data)
        return tuple(refused.get(number, final) for number in range(len(transaction.recipients)))

    async def check(self, *, until: float) -> bool:
        """Return whether the server still answers; its reply to RSET also ends a transaction."""
        self._needs_reset = False
        failed = await self._exchange(b"RSET\r\n", 1, until=until, seconds_max=CHECK_SECONDS_MAX)
        return failed is None and self._replies[0][0] == 250 and not self.is_closed

    async def quit(self) -> None:
        """End the session politely; never raises, and takes at most QUIT_SECONDS_MAX."""
        if not self.is_closed:
            await self._exchange(b"QUIT\r\n", 1, seconds_max=QUIT_SECONDS_MAX)
        self.drop()

    def drop(self) -> None:
        """Close the connection at once. A repeat is harmless."""
        self._end("closed")

    def connection_lost(self, exc: Exception | None) -> None:
        """Implement asyncio.Protocol: the transport is closed."""
        del exc
        self._end("closed")

    def eof_received(self) -> None:
        """Implement asyncio.Protocol: the server has closed its side."""
        self._end("closed")

    def pause_writing(self) -> None:
        """Implement asyncio.Protocol: written bytes have not left this process."""
        self._is_unsent = not self._is_encrypted

    def resume_writing(self) -> None:
        """Implement asyncio.Protocol: all written bytes have left this process."""
        self._is_unsent = False

    def data_received(self, data: bytes) -> None:
        """Implement asyncio.Protocol: read replies."""
        if self._waiter is None:
            # Usually 421 before the server closes. Kept, it would answer the next command.
            self._end("closed")
            return
        try:
            replies = self._reader.feed(data)
        except MalformedReply:
            self._end("malformed")
            return
        self._replies += replies
        if len(self._replies) > self._expected:
            self._end("malformed")
        elif any(code == CLOSING for code, _ in replies):
            # It closes now, and the commands after this one get no reply.
            self._end("closed")
        elif len(self._replies) == self._expected and not self._waiter.done():
            self._waiter.set_result(None)

    def _check_features(self, transaction: SmtpTransaction) -> None:
        features = self._features
        if transaction.smtputf8 and not features.has_smtputf8:
            raise SendFailed("mail", "smtputf8", "the relay does not offer SMTPUTF8")
        if transaction.is_eight_bit and not features.has_8bitmime:
            raise SendFailed("mail", "eight_bit", "the relay does not offer 8BITMIME")
        if features.size_max is not None and len(transaction.message) > features.size_max:
            raise SendFailed("mail", "too_large", f"the relay takes {features.size_max} bytes")

    async def _begin(
        self, transaction: SmtpTransaction, *, until: float
    ) -> tuple[dict[int, SmtpReply], RawReply | None]:
        """Send MAIL, RCPT and DATA; return the refused recipients by number, and DATA's reply.

        There is no reply to DATA if every recipient was refused.
        """
        if self._needs_reset and not await self.check(until=until):
            raise self._failure("mail", "closed")
        failed = await self._ask(self._commands(transaction), until=until) or "closed"
        mail, recipients, data = self._split_replies(len(transaction.recipients))
        if mail is None:
            raise self._failure("mail", failed)
        if not _is_accepted(mail):
            self._leave_transaction(data)
            raise SendFailed("mail", "refused", "refused by the relay", _reply("mail", mail))
        refused = {
            number: _reply("rcpt", reply)
            for number, reply in enumerate(recipients)
            if not _is_accepted(reply)
        }
        if len(recipients) < len(transaction.recipients):
            raise self._failure("rcpt", failed, transaction=transaction, refused=refused)
        if len(refused) == len(recipients):
            self._leave_transaction(data)
            return refused, None
        if data is None:
            raise self._failure("data", failed, transaction=transaction, refused=refused)
        if data[0] != START_INPUT:
            self._leave_transaction(data)
            if data[0] < 400:
                raise self._failure("data", "malformed", transaction=transaction, refused=refused)
        return refused, data

    def _split_replies(
        self, count: int
    ) -> tuple[RawReply | None, Sequence[RawReply], RawReply | None]:
        """Return the replies to MAIL, to `count` times RCPT, and to DATA, as far as they came."""
        replies = self._replies
        return (
            replies[0] if replies else None,
            replies[1 : count + 1],
            replies[count + 1] if len(replies) > count + 1 else None,
        )

    def _commands(self, transaction: SmtpTransaction) -> list[bytes]:
        features = self._features
        size = b" SIZE=%d" % len(transaction.message) if features.has_size else b""
        body = b" BODY=8BITMIME" if transaction.is_eight_bit else b""
        utf8 = b" SMTPUTF8" if transaction.smtputf8 else b""
        return [
            b"MAIL FROM:<%b>%b%b%b\r\n" % (transaction.sender, size, body, utf8),
            *(b"RCPT TO:<%b>\r\n" % recipient for recipient in transaction.recipients),
            b"DATA\r\n",
        ]

    async def _ask(self, commands: Sequence[bytes], *, until: float) -> FailureKind | None:
        """Send the commands, in one write if the server allows it; the replies are kept."""
        if self._features.is_pipelining:
            return await self._exchange(b"".join(commands), len(commands), until=until)
        replies: list[RawReply] = []
        failed: FailureKind | None = None
        for command in commands:
            is_data = command == commands[-1]
            if is_data and not any(map(_is_accepted, replies[1:])):
                break
            failed = await self._exchange(command, 1, until=until)
            replies += self._replies
            if failed is not None or not _is_accepted(replies[0]):
                break
        self._replies = replies
        return failed

    async def _send_message(
        self, transaction: SmtpTransaction, refused: Mapping[int, SmtpReply], *, until: float
    ) -> SmtpReply:
        """Send the message and its final dot; return the reply, which decides about it."""
        if self.is_closed:
            raise self._failure("data", "closed", transaction=transaction, refused=refused)
        failed = await self._exchange(
            encode_message(transaction.message), 1, until=until, seconds_max=DOT_SECONDS_MAX
        )
        code = self._replies[0][0] if self._replies else 0
        if self._is_unsent:
            # A refusal before the end. The rest of the message would be read as commands.
            self.drop()
        if code >= 400 or (code // 100 == 2 and not self._is_unsent):
            return _reply("dot", self._replies[0])
        # Once the last byte may have left this process, only the server knows what became of it.
        kind = "malformed" if self._replies else failed or "closed"
        raise self._failure(
            "dot", kind, transaction=transaction, refused=refused, is_unknown=not self._is_unsent
        )

    def _leave_transaction(self, data: RawReply | None) -> None:
        """Make sure that the next message begins anew."""
        if data is not None and data[0] == START_INPUT:
            # The server waits for a message that has no recipient; a dot could be taken for one.
            self.drop()
        self._needs_reset = True

    async def _exchange(
        self,
        data: bytes,
        count: int,
        *,
        until: float | None = None,
        seconds_max: float = COMMAND_SECONDS_MAX,
    ) -> FailureKind | None:
        """Write and wait for `count` replies; return None, or why there are fewer."""
        self._replies = []
        if self.is_closed:
            return "closed"
        limit = self._loop.time() + seconds_max
        timer = self._loop.call_at(limit if until is None else min(until, limit), self._expire)
        self._expected = count
        self._waiter = self._loop.create_future()
        self._transport.write(data)
        try:
            return await self._waiter
        except asyncio.CancelledError:
            # A late reply must not be taken for that to the next command.
            self.drop()
            raise
        finally:
            timer.cancel()
            self._waiter = None

    def _expire(self) -> None:
        self._end("timeout")

    def _end(self, kind: FailureKind) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(kind)
        if not self.is_closed:
            self.is_closed = True
            self._transport.abort()
            self._on_closed(self)

    def _failure(
        self,
        phase: SmtpPhase,
        kind: FailureKind,
        *,
        transaction: SmtpTransaction | None = None,
        refused: Mapping[int, SmtpReply] = MappingProxyType({}),
        is_unknown: bool = False,
    ) -> SendFailed:
        """Drop the connection, whose state nobody knows, and return the exception to raise."""
        self.drop()
        count = len(transaction.recipients) if transaction is not None else 0
        replies = tuple(refused.get(number) for number in range(count))
        if self._replies and self._replies[-1][0] == CLOSING:
            # The server has said why it closes, in reply to an earlier command of the group.
            closing = _reply("rcpt", self._replies[-1])
            return SendFailed("rcpt", "refused", "refused by the relay", closing, replies=replies)
        return SendFailed(phase, kind, REASONS[kind], is_unknown=is_unknown, replies=replies)


def _is_accepted(reply: RawReply) -> bool:
    return reply[0] // 100 == 2


def _reply(phase: SmtpPhase, reply: RawReply) -> SmtpReply:
    code, text = reply
    return make_reply(phase, code, text.decode("utf-8", "replace"))
