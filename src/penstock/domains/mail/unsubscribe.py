"""One-click unsubscribe (RFC 8058): the signed token in the link, and the link itself. Pure.

A token names a mail and the number of its recipient, never an address, and stays valid for ever,
because people unsubscribe from old mails too.
"""

import base64
import binascii
import hmac
import ipaddress
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from penstock.base.errors import InvalidInput

VERSION = 1  # First byte of every token; signed like the rest.
KEY_BYTES_MIN = 32  # As long as the hash; a shorter key is easier to guess than the signature.
SIGNATURE_BYTES = 16  # 128 bits, guessed only online; the whole hash would double the link.
PATH = "/mails/unsubscribe/"

_CONTENT = struct.Struct(">BQH")  # Version, mail id, number of the recipient.
_LENGTH = len(base64.urlsafe_b64encode(bytes(_CONTENT.size + SIGNATURE_BYTES)).rstrip(b"="))


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsubscription:
    """Who unsubscribes: the recipient with this number, counted from 0, of this mail."""

    mail_id: int
    recipient_no: int


def make_token(key: bytes, *, mail_id: int, recipient_no: int) -> str:
    """Return the token for a link, in letters, digits, `-` and `_`."""
    content = _CONTENT.pack(VERSION, mail_id, recipient_no)
    return base64.urlsafe_b64encode(content + _sign(key, content)).rstrip(b"=").decode()


def read_token(keys: Sequence[bytes], token: str) -> Unsubscription:
    """Return the recipient of a token, if one of the keys has signed it; raises InvalidInput."""
    raw = _decode(token)
    content, signature = raw[: _CONTENT.size], raw[_CONTENT.size :]
    if not any(hmac.compare_digest(_sign(key, content), signature) for key in keys):
        raise InvalidInput("token", "is not valid")
    version, mail_id, recipient_no = _CONTENT.unpack(content)
    if version != VERSION:
        raise InvalidInput("token", "is of a later release")
    return Unsubscription(mail_id=mail_id, recipient_no=recipient_no)


def make_url(public_url: str, token: str) -> str:
    """Return the link for the header List-Unsubscribe; `public_url` is PENSTOCK_PUBLIC_URL."""
    return public_url.rstrip("/") + PATH + token


def check_public_url(public_url: str, *, field: str) -> None:
    """Raise InvalidInput for an address that RFC 8058 does not allow.

    Mail programs send the request by https only; http is for trying it out on the own machine.
    """
    try:
        parts = urlsplit(public_url)
        host = parts.hostname
    except ValueError as refused:
        raise InvalidInput(field, "is not a URL") from refused
    if not public_url.isascii() or not public_url.isprintable() or " " in public_url or not host:
        raise InvalidInput(field, "is not a URL such as https://mail.example.org")
    if parts.query or parts.fragment or parts.username is not None:
        raise InvalidInput(field, "must not have an account, a query or a fragment")
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(host)):
        raise InvalidInput(field, "must begin with https://")


def is_one_click(body: bytes) -> bool:
    """Return whether a POST comes from a mail program, in either encoding of RFC 8058."""
    return b"List-Unsubscribe" in body and b"One-Click" in body


def _sign(key: bytes, content: bytes) -> bytes:
    assert len(key) >= KEY_BYTES_MIN
    return hmac.digest(key, b"penstock unsubscribe\0" + content, "sha256")[:SIGNATURE_BYTES]


def _decode(token: str) -> bytes:
    if len(token) != _LENGTH or not token.isascii():
        raise InvalidInput("token", "is not valid")
    try:
        return base64.b64decode(token + "=" * (-_LENGTH % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        raise InvalidInput("token", "is not valid") from None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
