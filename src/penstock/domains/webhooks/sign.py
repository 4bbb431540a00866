"""The headers that prove who sent a body and when, for four families of receivers. Pure.

`Signer` is prepared once per subscription and called for every attempt; `verify` is the other side.
"""

import base64
import binascii
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, assert_never

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from penstock.base.errors import InvalidInput
from penstock.domains.webhooks.secret import (
    Ed25519PublicKey,
    HmacSecret,
    Profile,
    Secret,
)

TOLERANCE = timedelta(minutes=5)  # What receivers' libraries allow for slow ways and wrong clocks.
SECRETS_MAX = 2  # The new one and, while a rotation overlaps, the previous one.
SIGNATURES_MAX = 16  # Nobody rotates through more secrets at once; bounds the work of `verify`.
MESSAGE_ID_LENGTH_MAX = 128

# Without dots, which separate what is signed, and without anything that could end a header line.
_MESSAGE_ID = re.compile(rf"[A-Za-z0-9_-]{{1,{MESSAGE_ID_LENGTH_MAX}}}")
_SECONDS = re.compile(r"[0-9]{1,11}")

Sign = Callable[[bytes, bytes], bytes]  # Signs the head and the body as one text.


class Signer:
    """Signs the deliveries of one subscription with its live secrets, the newest first.

    Every profile sends `webhook-id`, so that receivers can recognise a repetition. Raises
    InvalidInput for ed25519 secrets in the profiles that know only HMAC.
    """

    __slots__ = ("_profile", "_signs")

    def __init__(self, profile: Profile, secrets: Sequence[Secret]) -> None:
        assert 1 <= len(secrets) <= SECRETS_MAX
        self._profile: Profile = profile
        self._signs: list[Sign]
        match profile:
            case "standard" | "svix":
                self._signs = [_versioned(secret) for secret in secrets]
            case "stripe":
                self._signs = [_hexadecimal(secret) for secret in secrets]
            case "github":
                # The header holds one signature and receivers compare the whole of it, so a new
                # secret counts from the moment of its making, as it does at GitHub.
                self._signs = [_hexadecimal(secrets[0])]
            case _:
                assert_never(profile)

    def headers(self, message_id: str, at: int, body: bytes) -> bytes:
        """Return whole header lines for one attempt made `at` so many seconds after 1970.

        An attempt that is made later has other headers, and the same `message_id`.
        """
        if not _MESSAGE_ID.fullmatch(message_id):
            raise InvalidInput("message_id", "may hold letters, digits, _ and - only")
        name, seconds = message_id.encode(), b"%d" % at
        match self._profile:
            case "standard":
                head = b"%b.%b." % (name, seconds)
                return b"webhook-id: %b\r\nwebhook-timestamp: %b\r\nwebhook-signature: %b\r\n" % (
                    name,
                    seconds,
                    self._signatures(head, body),
                )
            case "svix":
                head = b"%b.%b." % (name, seconds)
                return (
                    b"webhook-id: %b\r\nsvix-id: %b\r\nsvix-timestamp: %b\r\nsvix-signature: %b\r\n"
                    % (name, name, seconds, self._signatures(head, body))
                )
            case "github":
                signature = self._signs[0](b"", body)
                return b"webhook-id: %b\r\nX-Hub-Signature-256: sha256=%b\r\n" % (name, signature)
            case "stripe":
                head = b"%b." % seconds
                signatures = b"".join([b",v1=" + sign(head, body) for sign in self._signs])
                return b"webhook-id: %b\r\nStripe-Signature: t=%b%b\r\n" % (
                    name,
                    seconds,
                    signatures,
                )

    def _signatures(self, head: bytes, body: bytes) -> bytes:
        if len(self._signs) == 1:  # As nearly always; a list of one takes a fifth of a microsecond.
            return self._signs[0](head, body)
        return b" ".join([sign(head, body) for sign in self._signs])


@dataclass(frozen=True, slots=True)
class SignatureRefused:
    """Why a request is not to be trusted: a word to decide by, and a sentence for people."""

    word: Literal["missing", "malformed", "too-old", "too-new", "mismatch"]
    detail: str


def verify(
    headers: Mapping[str, str],
    body: bytes,
    *,
    profile: Profile,
    secrets: Sequence[Secret | Ed25519PublicKey],
    now: datetime,
    tolerance: timedelta = TOLERANCE,
) -> SignatureRefused | None:
    """Return None if one of `secrets` signed these very bytes near `now`, and else why not.

    The profile is the receiver's choice and not read from the headers: GitHub's has no timestamp,
    and a sender that could choose it could repeat old requests. Names of headers are compared
    without case.
    """
    given = {name.lower(): value for name, value in headers.items()}
    match profile:
        case "standard" | "svix":
            claim = _read_standard("webhook" if profile == "standard" else "svix", given)
        case "github":
            claim = _read_github(given)
        case "stripe":
            claim = _read_stripe(given)
        case _:
            assert_never(profile)
    if isinstance(claim, SignatureRefused):
        return claim
    if claim.seconds is not None and (refused := _refuse_time(claim.seconds, now, tolerance)):
        return refused
    if len(claim.signatures) > SIGNATURES_MAX:
        return SignatureRefused("malformed", f"there are more than {SIGNATURES_MAX} signatures")
    if not any(_is_signed(claim, body, by=secret) for secret in secrets):
        return SignatureRefused(
            "mismatch", "no signature fits: another secret, or something was changed"
        )
    return None


# ------------------------------------------------------------------------------------ signatures


def _versioned(secret: Secret) -> Sign:
    """Return what signs for Standard Webhooks: the scheme's version, a comma, base64."""
    if isinstance(secret, HmacSecret):
        digest = _hmac(secret)
        return lambda head, body: b"v1," + binascii.b2a_base64(digest(head, body), newline=False)
    private_key = ed25519.Ed25519PrivateKey.from_private_bytes(secret.seed)
    return lambda head, body: (
        b"v1a," + binascii.b2a_base64(private_key.sign(head + body), newline=False)
    )


def _hexadecimal(secret: Secret | Ed25519PublicKey) -> Sign:
    """Return what signs for GitHub and Stripe."""
    if not isinstance(secret, HmacSecret):
        raise InvalidInput("secret", "must be for HMAC: this profile knows nothing else")
    digest = _hmac(secret)
    return lambda head, body: digest(head, body).hex().encode()


def _hmac(secret: HmacSecret) -> Sign:
    # A copy of an object that has its key takes 1.2 µs for 1 KB; with the hmac module it takes 2.6.
    keyed = HMAC(secret.key, SHA256())

    def digest(head: bytes, body: bytes) -> bytes:
        each = keyed.copy()
        each.update(head + body)
        return each.finalize()

    return digest


# ---------------------------------------------------------------------------------- verification


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """What headers say: when it was signed, what was signed before the body, and the signatures."""

    seconds: str | None
    head: str
    is_versioned: bool
    signatures: list[str]


def _read_standard(prefix: str, given: Mapping[str, str]) -> _Claim | SignatureRefused:
    names = [f"{prefix}-id", f"{prefix}-timestamp", f"{prefix}-signature"]
    for name in names:
        if not given.get(name):
            return SignatureRefused("missing", f"there is no header {name}")
    message_id, seconds, signatures = (given[name] for name in names)
    if "." in message_id:
        # Where the id ends would be in doubt: part of a body could pose as the timestamp.
        return SignatureRefused("malformed", f"{prefix}-id holds a dot")
    return _Claim(
        seconds=seconds,
        head=f"{message_id}.{seconds}.",
        is_versioned=True,
        signatures=signatures.split(),
    )


def _read_github(given: Mapping[str, str]) -> _Claim | SignatureRefused:
    signature = given.get("x-hub-signature-256")
    if not signature:
        return SignatureRefused("missing", "there is no header X-Hub-Signature-256")
    if not signature.startswith("sha256="):
        return SignatureRefused("malformed", "X-Hub-Signature-256 does not begin with sha256=")
    signatures = [signature.removeprefix("sha256=")]
    return _Claim(seconds=None, head="", is_versioned=False, signatures=signatures)


def _read_stripe(given: Mapping[str, str]) -> _Claim | SignatureRefused:
    header = given.get("stripe-signature")
    if not header:
        return SignatureRefused("missing", "there is no header Stripe-Signature")
    pairs = [part.strip().partition("=") for part in header.split(",")]
    instants = [value for name, _, value in pairs if name == "t"]
    if len(instants) != 1:
        return SignatureRefused("malformed", "Stripe-Signature does not hold one t=")
    return _Claim(
        seconds=instants[0],
        head=f"{instants[0]}.",
        is_versioned=False,
        signatures=[value for name, _, value in pairs if name == "v1"],
    )


def _refuse_time(seconds: str, now: datetime, tolerance: timedelta) -> SignatureRefused | None:
    if not _SECONDS.fullmatch(seconds):
        return SignatureRefused("malformed", "the timestamp is not a number of seconds since 1970")
    age_seconds = now.timestamp() - int(seconds)
    if age_seconds > tolerance.total_seconds():
        return SignatureRefused("too-old", f"it was signed {age_seconds:.0f} seconds ago")
    if age_seconds < -tolerance.total_seconds():
        return SignatureRefused(
            "too-new", f"it was signed {-age_seconds:.0f} seconds ahead of this machine's clock"
        )
    return None


def _is_signed(claim: _Claim, body: bytes, *, by: Secret | Ed25519PublicKey) -> bool:
    head = claim.head.encode(errors="replace")
    if not claim.is_versioned:
        expected = _hexadecimal(by)(head, body)
    elif isinstance(by, Ed25519PublicKey):
        return any(_is_public_signature(each, head + body, by) for each in claim.signatures)
    else:
        expected = _versioned(by)(head, body)
    return any(
        hmac.compare_digest(expected, each.encode(errors="replace")) for each in claim.signatures
    )


def _is_public_signature(signature: str, signed: bytes, public: Ed25519PublicKey) -> bool:
    version, _, encoded = signature.partition(",")
    try:
        raw = base64.b64decode(encoded, validate=True)
        ed25519.Ed25519PublicKey.from_public_bytes(public.raw).verify(raw, signed)
    except (ValueError, InvalidSignature):
        return False
    return version == "v1a"
