"""Small secrets, sealed for the database: AES-256-GCM under a key that the database never sees.

A seal names its key, so that keys can be changed one after another, and is bound to what it is
about, so that a sealed secret cannot be moved to another row.
"""

import base64
import binascii
import hashlib
import os
import secrets
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from penstock.base.errors import BadSetting, SealBroken

SETTING = "PENSTOCK_SECRET_KEY"
KEY_FILE = "secret.key"
KEY_BYTES = 32
VERSION = b"\x01"  # First byte of everything sealed in this form.
KEY_ID_BYTES = 4  # Tells apart the handful of keys that one installation ever has.
NONCE_BYTES = 12  # What GCM is made for; drawn at random it is good for 2^32 seals per key.
TAG_BYTES = 16

MARK_BYTES = len(VERSION) + KEY_ID_BYTES
_HINT = "make one with: openssl rand -base64 32"


class Vault:
    """Seals with the first key, the current one, and opens what it or an older one has sealed.

    One without keys refuses to do either: who has no secrets needs none.
    """

    __slots__ = ("_ciphers", "_current")

    def __init__(self, *given: bytes) -> None:
        keys = dict.fromkeys(given)
        assert all(len(key) == KEY_BYTES for key in keys), "a shorter key is a weaker cipher"
        self._ciphers = {_key_id(key): AESGCM(key) for key in keys}
        self._current = _key_id(given[0]) if given else b""
        assert len(self._ciphers) == len(keys), "two keys share an id; one in four billion does"

    def seal(self, plain: bytes, *, about: str) -> bytes:
        """Return `plain` encrypted; to open it one has to name the same `about`.

        Raises BadSetting where there is no key.
        """
        head = self.mark
        nonce = os.urandom(NONCE_BYTES)
        cipher = self._ciphers[self._current]
        return head + nonce + cipher.encrypt(nonce, plain, head + about.encode())

    def open(self, sealed: bytes, *, about: str) -> bytes:
        """Return what was sealed about `about`; raises SealBroken."""
        if not sealed.startswith(VERSION) or len(sealed) < MARK_BYTES + NONCE_BYTES + TAG_BYTES:
            raise SealBroken(about, "it is not in a form that we know")
        head, rest = sealed[:MARK_BYTES], sealed[MARK_BYTES:]
        key_id = head[len(VERSION) :]
        if key_id not in self._ciphers:
            raise SealBroken(about, f"its key {key_id.hex()} is not in {SETTING}")
        nonce, encrypted = rest[:NONCE_BYTES], rest[NONCE_BYTES:]
        try:
            return self._ciphers[key_id].decrypt(nonce, encrypted, head + about.encode())
        except InvalidTag:
            raise SealBroken(about, "it was changed, or sealed for something else") from None

    @property
    def mark(self) -> bytes:
        """What everything begins with that the current key has sealed; raises as `seal`."""
        if not self._current:
            raise BadSetting(SETTING, f"is not set, and secrets have to be sealed; {_HINT}")
        return VERSION + self._current

    def knows(self, mark: bytes) -> bool:
        """Say whether what begins with this mark can be opened."""
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
    """Return a new random key as text, in letters that need no quoting anywhere."""
    return base64.urlsafe_b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def load_or_make_key(folder: Path) -> str:
    """Return the key text kept in a data folder that exists; the first to ask makes it.

    Only our own account can read the file. Processes that ask at the same time get the same key.
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
    # Both alphabets are common and people lose the padding; what is meant is never in doubt.
    letters = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        key = base64.b64decode(letters + "=" * (-len(letters) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise BadSetting(name, f"{which} is not base64; {_HINT}") from None
    if len(key) != KEY_BYTES:
        raise BadSetting(name, f"{which} has {len(key)} bytes and not {KEY_BYTES}; {_HINT}")
    return key


def _make_once(path: Path) -> None:
    """Write a new key under `path` unless somebody else has done so in the meantime."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        _write_private(draft, make_key() + "\n")
        # Unlike a rename, a link never replaces: whoever comes second takes the first one's key.
        # And unlike a file that is opened and then written, it is never seen half-written.
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
