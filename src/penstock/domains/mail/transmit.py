"""What the handler asks of an SMTP client, in the types of this domain; `compose` provides it.

Structs, because a worker makes one of each for every mail (ADR 0009).
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from msgspec import Struct

from penstock.domains.mail.relay import SmtpRelay
from penstock.domains.mail.reply import RelayReply, SmtpPhase


class MailTransmission(Struct, frozen=True, kw_only=True):
    """One SMTP transaction; `timeout` is in seconds, and covers the wait for a connection too."""

    sender: str
    recipients: Sequence[str]
    message: bytes
    smtputf8: bool
    timeout: float


class Replied(Struct, frozen=True):
    """One reply for each recipient, in their order."""

    replies: tuple[RelayReply, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransmissionFailed:
    """The transaction failed as a whole. `kind` is the client's word, `reason` may be logged.

    `is_unknown`: the end of the message may have been received, and no reply came. `replies` are
    those that recipients had got before, in their order; None and missing ones got none.
    """

    phase: SmtpPhase
    kind: str
    reason: str
    reply: RelayReply | None = None
    is_unknown: bool = False
    replies: tuple[RelayReply | None, ...] = ()


Transmit = Callable[[SmtpRelay, MailTransmission], Awaitable[Replied | TransmissionFailed]]
