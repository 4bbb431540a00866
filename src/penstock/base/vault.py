"""Small secrets, sealed for the database: AES-256-GCM under a key that the database never sees.

A sealed secret names its key, so that keys can be rotated, and is bound to what it is about, so
that it cannot be moved to another row.
"""

import base64
import binascii
import hashlib
import hmac
import os
import secrets
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from penstock.base.errors import BadSetting, SealBroken

SETTING = "PENSTOCK_SECRET_KEY"
KEY_FILE = "secret.key"
KEY_BYTES = 32
VERSION = b"\x01"  # First byte of everything sealed in this format.
KEY_ID_BYTES = 4  # Distinguishes the few keys that one installation ever has.
NONCE_BYTES = 12  # The standard length of GCM; at random, safe for 2^32 seals per key.
TAG_BYTES = 16

MARK_BYTES = len(VERSION) + KEY_ID_BYTES
_HINT = "make one with: openssl rand -base64 32"


class Vault:
    """Seals with the first key, the current one, and opens what any of its keys has sealed.

    Without keys it refuses both: an installation without secrets needs none.
    """

    __slots__ = ("_ciphers", "_current", "_keys")

    def __init__(self, *given: bytes) -> None:
        keys = dict.fromkeys(given)
        self._keys = tuple(keys)
        assert all(len(key) == KEY_BYTES for key in keys), "a shorter key is a weaker cipher"
        self._ciphers = {_key_id(key): AESGCM(key) for key in keys}
        self._current = _key_id(given[0]) if given else b""
        assert len(self._ciphers) == len(keys), "two keys share an id; one in four billion does"

    def seal(self, plain: bytes, *, about: str) -> bytes:
        """Return `plain` encrypted; to open it, the same `about` is needed.

        Raises BadSetting without a key.
        """
        head = self.mark
        nonce = os.urandom(NONCE_BYTES)
        cipher = self._ciphers[self._current]
        return head + nonce + cipher.encrypt(nonce, plain, head + about.encode())

    def open(self, sealed: bytes, *, about: str) -> bytes:
        """Return what was sealed about `about`; raises SealBroken."""
        if not sealed.startswith(VERSION) or len(sealed) < MARK_BYTES + NONCE_BYTES + TAG_BYTES:
            raise SealBroken(about, "its format is unknown")
        head, rest = sealed[:MARK_BYTES], sealed[MARK_BYTES:]
        key_id = head[len(VERSION) :]
        if key_id not in self._ciphers:
            raise SealBroken(about, f"its key {key_id.hex()} is not in {SETTING}")
        nonce, encrypted = rest[:NONCE_BYTES], rest[NONCE_BYTES:]
        try:
            return self._ciphers[key_id].decrypt(nonce, encrypted, head + about.encode())
        except InvalidTag:
            raise SealBroken(about, "it was changed, or sealed for something else") from None

    def derive(self, purpose: str) -> tuple[bytes, ...]:
        """Return a key for another purpose from each key, the current one first; raises as `seal`.

        Nobody can compute one from another.
        """
        assert self.mark, "raises without a key"
        about = b"penstock derived\0" + purpose.encode()
        return tuple(hmac.digest(key, about, "sha256") for key in self._keys)

    @property
    def mark(self) -> bytes:
        """The first bytes of everything that the current key has sealed; raises as `seal`."""
        if not self._current:
            raise BadSetting(SETTING, f"is not set, and is needed to seal secrets; {_HINT}")
        return VERSION + self._current

    def knows(self, mark: bytes) -> bool:
        """Return whether what begins with this mark can be opened."""
        return mark.startswith(VERSION) and mark.removeprefix(VERSION) in self._ciphers


def parse_keys(text: str, *, name: str = SETTING) -> tuple[bytes, ...]:
    """Read keys separated by commas, the current one first: `Vault(*parse_keys(text))`.

    Raises BadSetting with `name`, the place where the text was found, and never with the text.
    """
    parts = [part.strip() for part in text.split(",")]
    return tuple(
        _parse_key(part, name=name, which=f"key {number} of {len(parts)}")
        for number, part in enumerate(parts, start=1)
    )


def make_key() -> str:
    """Return a new random key as text that needs no quoting."""
    return base64.urlsafe_b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def load_or_make_key(folder: Path) -> str:
    """Return the key text kept in an existing data folder; the first call generates it.

    Only the own account can read the file. Processes that call at the same time get the same key.
    """
    path = folder / KEY_FILE
    if not path.exists():
        _make_once(path)
    text = path.read_text(encoding="ascii", errors="replace").strip()
    parse_keys(text, name=str(path))
    return text


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"penstock key id\0" + key).digest()[:KEY_ID_BYTES]


def _parse_key(text: str, *, name: str, which: str) -> bytes:
    # Both base64 alphabets are accepted, with or without padding; there is no ambiguity.
    letters = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        key = base64.b64decode(letters + "=" * (-len(letters) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise BadSetting(name, f"{which} is not base64; {_HINT}") from None
    if len(key) != KEY_BYTES:
        raise BadSetting(name, f"{which} has {len(key)} bytes and not {KEY_BYTES}; {_HINT}")
    return key


def _make_once(path: Path) -> None:
    """Write a new key to `path` unless another process has done so meanwhile."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        _write_private(draft, make_key() + "\n")
        # Unlike a rename, a link never replaces a file: the second process uses the first one's
        # key. And unlike a file that is opened and then written, it is never seen half-written.
        path.hardlink_to(draft)
    except FileExistsError:
        return
    finally:
        draft.unlink(missing_ok=True)
    _sync(path.parent)  # Secrets sealed with the key must not outlive it in a crash.


def _write_private(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
