"""Signing secrets: made, read and checked. Texts are for people and the vault; keys are for `sign`.

Standard Webhooks writes secrets as base64 with a prefix: `whsec_` for HMAC, `whsk_` and `whpk_` for
the halves of an ed25519 pair. GitHub and Stripe take any text, as it stands, for the HMAC key.
"""

import base64
import binascii
import secrets
from dataclasses import dataclass, field
from typing import Literal, get_args

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from penstock.base.errors import InvalidInput

Profile = Literal["standard", "svix", "github", "stripe"]
Scheme = Literal["hmac", "ed25519"]

PROFILES: tuple[Profile, ...] = get_args(Profile)

HMAC_PREFIX = "whsec_"
PRIVATE_PREFIX = "whsk_"
PUBLIC_PREFIX = "whpk_"

HMAC_BYTES = 32  # As long as the hash; more would not be stronger.
HMAC_BYTES_MIN, HMAC_BYTES_MAX = 24, 64  # What Standard Webhooks allows.
SEED_BYTES = PUBLIC_BYTES = 32
TEXT_LENGTH_MIN = 16  # A secret that can be guessed signs for everybody.
TEXT_LENGTH_MAX = 256  # GitHub's and Stripe's are far shorter.


@dataclass(frozen=True, slots=True, kw_only=True)
class HmacSecret:
    """The key of an HMAC-SHA256; sender and receiver share it."""

    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ed25519Secret:
    """The private half of a pair, as its seed; it is never sent."""

    seed: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ed25519PublicKey:
    """The public half of a pair, with which a receiver verifies."""

    raw: bytes


Secret = HmacSecret | Ed25519Secret


def make_secret(scheme: Scheme = "hmac") -> str:
    """Return a new secret as text. HMAC secrets suit all profiles, ed25519 not GitHub or Stripe."""
    if scheme == "hmac":
        return HMAC_PREFIX + _encode(secrets.token_bytes(HMAC_BYTES))
    seed = secrets.token_bytes(SEED_BYTES)
    # The standard leaves the layout open. Svix wants both halves, and every reader finds the seed.
    return PRIVATE_PREFIX + _encode(seed + _public_half(seed))


def read_secret(text: str, profile: Profile) -> Secret:
    """Read a secret, generated or given; raises InvalidInput, never with the text.

    The profile decides: to Stripe's receivers the prefix `whsec_` is part of the key, to those of
    Standard Webhooks it is not.
    """
    if profile in ("github", "stripe"):
        return _read_text(text)
    if text.startswith(HMAC_PREFIX):
        return _read_hmac(_decode(text.removeprefix(HMAC_PREFIX)))
    if text.startswith(PRIVATE_PREFIX):
        return _read_private(_decode(text.removeprefix(PRIVATE_PREFIX)))
    raise InvalidInput("secret", f"must begin with {HMAC_PREFIX} or {PRIVATE_PREFIX}")


def public_key(secret: Ed25519Secret) -> str:
    """Return the text that a receiver needs to verify what this secret signs."""
    return PUBLIC_PREFIX + _encode(_public_half(secret.seed))


def read_public_key(text: str) -> Ed25519PublicKey:
    """Read a `whpk_` text; raises InvalidInput."""
    if not text.startswith(PUBLIC_PREFIX):
        raise InvalidInput("secret", f"must begin with {PUBLIC_PREFIX}")
    raw = _decode(text.removeprefix(PUBLIC_PREFIX))
    if len(raw) != PUBLIC_BYTES:
        raise InvalidInput("secret", f"has {len(raw)} bytes and not {PUBLIC_BYTES}")
    return Ed25519PublicKey(raw=raw)


def _read_text(text: str) -> HmacSecret:
    if not TEXT_LENGTH_MIN <= len(text) <= TEXT_LENGTH_MAX:
        raise InvalidInput(
            "secret", f"must have from {TEXT_LENGTH_MIN} to {TEXT_LENGTH_MAX} characters"
        )
    if not text.isprintable():
        raise InvalidInput("secret", "holds a character that cannot be printed")
    return HmacSecret(key=text.encode())


def _read_hmac(key: bytes) -> HmacSecret:
    if not HMAC_BYTES_MIN <= len(key) <= HMAC_BYTES_MAX:
        raise InvalidInput(
            "secret",
            f"has {len(key)} bytes and not from {HMAC_BYTES_MIN} to {HMAC_BYTES_MAX}",
        )
    return HmacSecret(key=key)


def _read_private(raw: bytes) -> Ed25519Secret:
    seed, public_half = raw[:SEED_BYTES], raw[SEED_BYTES:]
    if len(seed) != SEED_BYTES or len(public_half) not in (0, PUBLIC_BYTES):
        raise InvalidInput(
            "secret",
            f"has {len(raw)} bytes and not {SEED_BYTES} (the seed) "
            f"or {SEED_BYTES + PUBLIC_BYTES} (seed and public key)",
        )
    if public_half and public_half != _public_half(seed):
        raise InvalidInput("secret", "holds a public key that does not belong to its seed")
    return Ed25519Secret(seed=seed)


def _public_half(seed: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def _encode(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _decode(text: str) -> bytes:
    # Padding is often lost on the way. The other alphabet is refused: receivers' libraries skip
    # its letters without a word and would sign with another key than we do.
    letters = text.rstrip("=")
    try:
        return base64.b64decode(letters + "=" * (-len(letters) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput("secret", "is not base64 after its prefix") from None
