"""What is sent in one transaction, as bytes of the protocol."""

import re
from collections.abc import Sequence

from msgspec import Struct

from penstock.base.errors import InvalidInput

# A control character would begin another command; brackets end the address.
_ADDRESS = re.compile(r"[^\x00-\x20\x7f<>]+")
_LINE_END = re.compile(rb"\r\n|\r|\n")
_DOT = re.compile(rb"\n\.")


class SmtpTransaction(Struct, frozen=True):
    """One transaction; `message` is without the final dot and not yet stuffed.

    A struct, because there is one for every mail (ADR 0009).
    """

    sender: bytes
    recipients: tuple[bytes, ...]
    message: bytes
    smtputf8: bool
    is_eight_bit: bool


def make_transaction(
    sender: str, recipients: Sequence[str], *, message: bytes, smtputf8: bool
) -> SmtpTransaction:
    """Return the transaction; raises InvalidInput for what cannot be written as a command.

    An empty sender is the null sender of reports.
    """
    if not recipients:
        raise InvalidInput("recipients", "must have at least one address")
    return SmtpTransaction(
        sender=_encode("sender", sender, smtputf8=smtputf8) if sender else b"",
        recipients=tuple(_encode("recipients", each, smtputf8=smtputf8) for each in recipients),
        message=message,
        smtputf8=smtputf8,
        is_eight_bit=not message.isascii(),
    )


def encode_message(message: bytes) -> bytes:
    """Return the message with CRLF line ends, leading dots doubled, and the final dot.

    A bare CR or LF becomes CRLF: servers disagree about them, and a bare LF before a dot would let
    a message smuggle in a second one.
    """
    # Searches for one byte, and a regular expression for two: bytes.count and bytes.replace of two
    # take twice as long, 300 µs for 100 kB.
    if message.replace(b"\r", b"").replace(b"\n", b"\r\n") != message:
        message = _LINE_END.sub(b"\r\n", message)
    message = _DOT.sub(b"\n..", message)
    if message.startswith(b"."):
        message = b"." + message
    return message + (b".\r\n" if message.endswith(b"\r\n") or not message else b"\r\n.\r\n")


def _encode(field: str, address: str, *, smtputf8: bool) -> bytes:
    if not _ADDRESS.fullmatch(address):
        raise InvalidInput(field, "has a character that an address cannot contain")
    try:
        return address.encode("utf-8" if smtputf8 else "ascii")
    except UnicodeEncodeError as refused:
        raise InvalidInput(field, "needs SMTPUTF8") from refused
