"""What can go wrong with a send, and the translation of everything that aiosmtplib raises.

Callers see SendFailed, and InvalidInput for arguments that cannot be sent.
"""

import os
import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import ClassVar, Literal

import aiosmtplib

from penstock.base.errors import Unavailable
from penstock.base.permits import deadline
from penstock.integrations.smtp.reply import SmtpPhase, SmtpReply, make_reply

FailureKind = Literal[
    "refused",  # The server refused with a reply.
    "busy",  # No connection became free in time.
    "bad_name",  # The host name has no address.
    "connect",  # Connection refused, or no route to the host.
    "tls",  # The TLS handshake failed, or the certificate is not valid for the host.
    "not_offered",  # The relay does not offer STARTTLS or AUTH, which its address asks for.
    "too_large",  # The message is larger than the relay accepts (SIZE).
    "smtputf8",  # An address needs SMTPUTF8, which the relay does not offer.
    "eight_bit",  # The message has 8-bit bytes, and the relay does not offer 8BITMIME.
    "timeout",  # The time was over, in whichever phase.
    "closed",  # The connection was lost.
    "malformed",  # The server does not speak SMTP.
]


@dataclass(eq=False)
class SendFailed(Unavailable):
    """A message was not sent, or nobody knows whether it was.

    `reply` is the server's if there was one. `is_unknown` holds exactly when the final dot may have
    been received and no reply came. `replies` has those that recipients got before, else None.
    """

    code: ClassVar[str] = "send-failed"
    phase: SmtpPhase
    kind: FailureKind
    reason: str
    reply: SmtpReply | None = None
    is_unknown: bool = False
    replies: tuple[SmtpReply | None, ...] = ()

    def __str__(self) -> str:
        """Return what may be logged: not the server's words, which contain addresses."""
        code = f" {self.reply.code}" if self.reply is not None else ""
        return f"{self.phase}: {self.kind}{code}: {self.reason}"


@asynccontextmanager
async def translated(phase: SmtpPhase) -> AsyncGenerator[None]:
    """Raise SendFailed for what aiosmtplib or the system raises in the block."""
    try:
        yield
    except (aiosmtplib.SMTPException, OSError, ValueError) as failure:
        raise translate(failure, phase) from failure


def translate(failure: Exception, phase: SmtpPhase) -> SendFailed:
    """Return what a caller sees of an exception that was raised in `phase`."""
    if phase == "connect" and _is_after_connect(failure):
        phase = "banner"
    match failure:
        case aiosmtplib.SMTPResponseException(code=-1):
            return SendFailed(phase, "malformed", "not an SMTP reply")
        case aiosmtplib.SMTPResponseException():
            reply = make_reply(phase, failure.code, failure.message)
            return SendFailed(phase, "refused", "refused by the relay", reply)
        case aiosmtplib.SMTPNotSupported():
            return SendFailed(phase, "not_offered", "not offered by the relay")
        case aiosmtplib.SMTPTimeoutError() | TimeoutError():
            return SendFailed(phase, "timeout", "timed out")
        case aiosmtplib.SMTPRecipientsRefused():
            return SendFailed(phase, "refused", "all recipients were refused")
        case aiosmtplib.SMTPServerDisconnected() | ConnectionResetError() | BrokenPipeError():
            return SendFailed(phase, "closed", "the connection was lost")
        case aiosmtplib.SMTPConnectError():
            return _translate_connect(failure.__cause__, phase)
        case aiosmtplib.SMTPException():
            # STARTTLS or AUTH is missing, or has no mechanism that the client knows.
            return SendFailed(phase, "not_offered", "not offered by the relay")
        case OSError():
            return _translate_connect(failure, phase)
        case _:
            return SendFailed(phase, "malformed", "a name or a reply cannot be encoded")


def _is_after_connect(failure: Exception) -> bool:
    """Say whether the connection was made, so that the banner is missing or bad."""
    return isinstance(failure, aiosmtplib.SMTPResponseException) or isinstance(
        failure.__cause__, aiosmtplib.SMTPException
    )


def _translate_connect(cause: BaseException | None, phase: SmtpPhase) -> SendFailed:
    match cause:
        case ssl.SSLCertVerificationError():
            # OpenSSL sets both attributes below; an error that Python raises has neither.
            flaw = getattr(cause, "verify_message", "not valid")
            return SendFailed(phase, "tls", f"certificate verification failed: {flaw}")
        case ssl.SSLError():
            flaw = str(getattr(cause, "reason", None) or "protocol error")
            return SendFailed(phase, "tls", f"TLS handshake failed: {flaw.lower()}")
        case socket.gaierror():
            return SendFailed(phase, "bad_name", "the host name has no address")
        case aiosmtplib.SMTPServerDisconnected():
            return SendFailed(phase, "closed", "the connection was lost")
        case OSError() if cause.errno is not None:
            return SendFailed(phase, "connect", os.strerror(cause.errno).lower())
        case _:
            return SendFailed(phase, "connect", "no connection")


def within(until: float, phase: SmtpPhase) -> AbstractAsyncContextManager[None]:
    """Raise SendFailed if the block has not finished when the loop's time is `until`."""
    return deadline(until, lambda: SendFailed(phase, "timeout", "timed out"))
