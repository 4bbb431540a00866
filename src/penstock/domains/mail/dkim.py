"""DKIM signatures (RFC 6376), made with dkimpy; this is the only module that calls it.

Measured for a mail of 2 kB: 8 to 9 ms of CPU time with RSA of 2048 bits, because dkimpy computes
it in Python, and 0.4 ms with ed25519 (RFC 8463), which not all receivers verify yet.
"""

import base64
import re
from dataclasses import dataclass, field
from typing import Literal, Protocol, cast

import dkim
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
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

_DOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})+")
_SELECTOR = re.compile(r"(?=.{1,253}$)[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*")


@dataclass(frozen=True, slots=True, kw_only=True)
class DkimKey:
    """A private key in the form that dkimpy takes, and where its public half is in the DNS."""

    domain: str
    selector: str
    algorithm: Algorithm
    private: bytes = field(repr=False)
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
                private=base64.b64encode(key.private_bytes_raw()),
                public=key.public_key().public_bytes_raw(),
            )
        case RSAPrivateKey() as key if RSA_BITS_MIN <= key.key_size <= RSA_BITS_MAX:
            return DkimKey(
                domain=domain,
                selector=selector,
                algorithm="rsa-sha256",
                private=key.private_bytes(
                    Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
                ),
                public=key.public_key().public_bytes(
                    Encoding.DER, PublicFormat.SubjectPublicKeyInfo
                ),
            )
        case RSAPrivateKey():
            raise InvalidInput("key", f"must have {RSA_BITS_MIN} to {RSA_BITS_MAX} bits")
        case _:
            raise InvalidInput("key", "must be of RSA or ed25519")


def sign(message: bytes, key: DkimKey) -> bytes:
    """Return the message with its signature in front; raises InvalidInput for no message at all.

    The signature contains the time, so two attempts have different ones.
    """
    try:
        signer = cast("_Signer", dkim.DKIM(message, signature_algorithm=key.algorithm.encode()))
        present = [name.lower() for name, _ in signer.headers]
        signature = signer.sign(
            key.selector.encode(),
            key.domain.encode(),
            key.private,
            # Relays may fold headers anew and remove spaces at the end of lines.
            canonicalize=(b"relaxed", b"relaxed"),
            include_headers=[
                *(name for name in present if name in SIGNED_HEADERS),
                *SEALED_HEADERS,
            ],
        )
    except dkim.DKIMException as refused:
        raise InvalidInput("message", f"cannot be signed: {refused}") from refused
    return signature + message


class _Signer(Protocol):
    """The part of dkim.DKIM that is used; dkimpy has no types."""

    headers: list[tuple[bytes, bytes]]

    def sign(
        self,
        selector: bytes,
        domain: bytes,
        privkey: bytes,
        *,
        canonicalize: tuple[bytes, bytes],
        include_headers: list[bytes],
    ) -> bytes: ...


def _load(pem: bytes) -> object:
    try:
        return load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # Not chained: the cause could show parts of the key.
        raise InvalidInput("key", "is not a private key in PEM without a password") from None
