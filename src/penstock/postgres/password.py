"""The password of the embedded server: its file, its verifier, and the rules that ask for it.

The file is a libpq passfile beside the cluster's folder, readable by the owner of the data folder
alone: as root, PostgreSQL runs as an account that other services may share.
"""

import base64
import hashlib
import hmac
import os
import re
import secrets
from pathlib import Path

from penstock.base.errors import BadSetting
from penstock.postgres.account import Account

PASSWORD_BYTES = 32
SALT_BYTES = 16
# More iterations only slow down guessing, and 256 random bits cannot be guessed. Each connection
# pays for them on the event loop: 4,096, PostgreSQL's default, take 2.6 ms.
ITERATIONS = 1

_LINE = re.compile(r"\*:\*:\*:postgres:([\w-]+)\n?", re.ASCII)  # Any host, port and database.


def ensure_passfile(path: Path) -> None:
    """Make the file with a new password unless it exists; the caller owns the folder's lock.

    It belongs to the owner of the folder, who may be another than root. Raises BadSetting.
    """
    try:
        # Empty after a power cut: it is not synced, because the next start can make another.
        if not path.exists() or path.stat().st_size == 0:
            line = f"*:*:*:postgres:{secrets.token_urlsafe(PASSWORD_BYTES)}\n"
            owner = path.parent.stat()
            replace_private(path, line, account=Account(uid=owner.st_uid, gid=owner.st_gid))
        # A copy may have lost its mode, and clients ignore a passfile that others can read.
        path.chmod(0o600)
    except OSError as exc:
        raise BadSetting("PENSTOCK_DATA_DIR", f"{path}: {exc.strerror}") from exc
    read_password(path)


def read_password(path: Path) -> str:
    """Return the password; raises BadSetting, never with the text."""
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError as exc:
        raise BadSetting("PENSTOCK_DATA_DIR", f"{path}: {exc.strerror}") from exc
    match = _LINE.fullmatch(text)
    if match is None:
        reason = f"{path} is not a passfile of Penstock; delete it, and the next start makes one"
        raise BadSetting("PENSTOCK_DATA_DIR", reason)
    return match[1]


def make_verifier(password: str) -> str:
    """Return what PostgreSQL stores for scram-sha-256; the password does not follow from it."""
    salt = secrets.token_bytes(SALT_BYTES)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, ITERATIONS)
    stored_key = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    salt64, stored64, server64 = (
        base64.b64encode(part).decode() for part in (salt, stored_key, server_key)
    )
    return f"SCRAM-SHA-256${ITERATIONS}:{salt64}${stored64}:{server64}"


def access_rules(password: str) -> str:
    """Return the text of pg_hba.conf, which names the password by its hash.

    So a cluster whose folder was replaced, and has another password or none, is recognised.
    """
    return (
        "# Written by Penstock, and again at the next start if it is changed.\n"
        f"# Password: SHA-256 {hashlib.sha256(password.encode()).hexdigest()}\n"
        "local all all scram-sha-256\n"
        "local replication all scram-sha-256\n"
    )


def replace_private(path: Path, text: str, *, account: Account | None) -> None:
    """Replace a file by one that only `account`, or the own account, can read.

    It is never seen half-written. The folder may belong to an account that is not trusted: root
    follows no symbolic link there.
    """
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        if account is not None and os.geteuid() == 0:
            os.fchown(descriptor, account.uid, account.gid)
        file.write(text)
    draft.rename(path)
