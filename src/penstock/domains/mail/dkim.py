"""DKIM signatures (RFC 6376, RFC 8463), relaxed/relaxed. Pure, except for the time.

Written here because dkimpy computes RSA in Python: 8 to 9 ms for a mail of 2 kB with 2048 bits. The
tests verify every signature with dkimpy.
"""

import base64
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from penstock.base.errors import InvalidInput

RSA_BITS_MIN = 1024  # RFC 8301: receivers refuse shorter keys.
RSA_BITS_MAX = 4096  # Longer ones do not fit into the DNS record that receivers read.

Algorithm = Literal["rsa-sha256", "ed25519-sha256"]

# Everything that a reader or a mail program acts on. RFC 8058 requires the two of unsubscribing.
SIGNED_HEADERS = frozenset(
    {
        b"auto-submitted", b"cc", b"content-transfer-encoding", b"content-type", b"date", b"from",
        b"in-reply-to", b"list-id", b"list-unsubscribe", b"list-unsubscribe-post", b"message-id",
        b"mime-version", b"references", b"reply-to", b"subject", b"to",
    }
)  # fmt: skip
# Signed once more than they occur: a second one, added later, makes the signature invalid.
SEALED_HEADERS = (b"from", b"to", b"subject", b"date")
LINE_LENGTH = 72  # Of the signature's base64: RFC 5322 asks to fold at 78.
NAMES_PER_LINE = 3  # Of signed headers; the three longest names fill a line.

_DOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})+")
_SELECTOR = re.compile(r"(?=.{1,253}$)[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*")
_HEADER_END = re.compile(rb"\r\n(?![ \t])")
_SPACES = re.compile(rb"[ \t]{2,}|\t")


@dataclass(frozen=True, slots=True, kw_only=True)
class DkimKey:
    """A private key, and where its public half is in the DNS."""

    domain: str
    selector: str
    algorithm: Algorithm
    private: RSAPrivateKey | Ed25519PrivateKey = field(repr=False)
    public: bytes = field(repr=False)

    @property
    def record_name(self) -> str:
        """The name of the TXT record that receivers read."""
        return f"{self.selector}._domainkey.{self.domain}"

    @property
    def record(self) -> str:
        """The value of that record."""
        kind = self.algorithm.partition("-")[0]
        return f"v=DKIM1; k={kind}; p={base64.b64encode(self.public).decode()}"


def read_key(pem: bytes, *, domain: str, selector: str) -> DkimKey:
    """Read a private key of RSA or ed25519 from PEM; raises InvalidInput, never with the key."""
    if not _DOMAIN.fullmatch(domain):
        raise InvalidInput("domain", "is not a domain in ASCII and lower case")
    if not _SELECTOR.fullmatch(selector):
        raise InvalidInput("selector", "may have lower-case letters, digits, - and . only")
    match _load(pem):
        case Ed25519PrivateKey() as key:
            return DkimKey(
                domain=domain,
                selector=selector,
                algorithm="ed25519-sha256",
                private=key,
                public=key.public_key().public_bytes_raw(),
            )
        case RSAPrivateKey() as key if RSA_BITS_MIN <= key.key_size <= RSA_BITS_MAX:
            return DkimKey(
                domain=domain,
                selector=selector,
                algorithm="rsa-sha256",
                private=key,
                public=key.public_key().public_bytes(
                    Encoding.DER, PublicFormat.SubjectPublicKeyInfo
                ),
            )
        case RSAPrivateKey():
            raise InvalidInput("key", f"must have {RSA_BITS_MIN} to {RSA_BITS_MAX} bits")
        case _:
            raise InvalidInput("key", "must be of RSA or ed25519")


def sign(message: bytes, key: DkimKey) -> bytes:
    """Return the message, which has CRLF line ends, with its signature in front.

    Raises InvalidInput for what is not a message. The signature contains the time, so two attempts
    have different ones.
    """
    head, _, body = message.partition(b"\r\n\r\n")
    # From the last to the first, the order in which a verifier takes headers of the same name.
    headers = [_canonicalize_header(each) for each in reversed(_HEADER_END.split(head))]
    covered = [(name, value) for name, value in headers if name in SIGNED_HEADERS]
    if b"from" not in dict(covered):
        raise InvalidInput("message", "cannot be signed: it has no From")
    unsigned = _signature_header(
        key, names=[*(name for name, _ in covered), *SEALED_HEADERS], body=body
    )
    name, value = _canonicalize_header(unsigned)
    signed = b"".join(b"%b:%b\r\n" % each for each in covered) + b"%b:%b" % (name, value)
    signature = base64.b64encode(_sign(signed, key))
    return unsigned + _fold(signature, LINE_LENGTH) + b"\r\n" + message


def _canonicalize_header(header: bytes) -> tuple[bytes, bytes]:
    """Return the name and the value as relays may not change them; raises InvalidInput."""
    name, colon, value = header.partition(b":")
    if not colon:
        raise InvalidInput("message", "cannot be signed: a header has no colon")
    value = value.replace(b"\r\n", b"")
    return name.rstrip().lower(), _SPACES.sub(b" ", value).strip(b" ")


def _canonicalize_body(body: bytes) -> bytes:
    if b"  " in body or b"\t" in body:
        body = _SPACES.sub(b" ", body)
    body = body.replace(b" \r\n", b"\r\n").rstrip(b" \r\n")
    return body + b"\r\n" if body else body


def _signature_header(key: DkimKey, *, names: Sequence[bytes], body: bytes) -> bytes:
    """Return the header up to its signature, which is the value of the last tag."""
    lines = [
        b":".join(names[at : at + NAMES_PER_LINE]) for at in range(0, len(names), NAMES_PER_LINE)
    ]
    tags = (
        f"v=1; a={key.algorithm}; c=relaxed/relaxed; t={int(time.time())}".encode(),
        f"d={key.domain}; s={key.selector}".encode(),
        b"h=" + b":\r\n ".join(lines),
        b"bh=" + base64.b64encode(sha256(_canonicalize_body(body)).digest()),
        b"b=",
    )
    return b"DKIM-Signature: " + b";\r\n ".join(tags)


def _sign(signed: bytes, key: DkimKey) -> bytes:
    match key.private:
        case RSAPrivateKey():
            return key.private.sign(signed, PKCS1v15(), SHA256())
        case Ed25519PrivateKey():
            return key.private.sign(sha256(signed).digest())


def _fold(text: bytes, length: int) -> bytes:
    return b"\r\n ".join([text[at : at + length] for at in range(0, len(text), length)])


def _load(pem: bytes) -> object:
    try:
        return load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # Not chained: the cause could show parts of the key.
        raise InvalidInput("key", "is not a private key in PEM without a password") from None
