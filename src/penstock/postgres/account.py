"""Which system account runs the embedded server, and how that account reaches its files.

PostgreSQL refuses to run as root. Started by root it runs as the owner of an existing data folder,
or as `nobody`; parent folders get search permission for others, never read permission.
"""

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

from penstock.base.log import Logger

FALLBACK = "nobody"  # The one unprivileged account that every Unix has.


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A system account other than root."""

    uid: int
    gid: int


def choose_account(folder: Path) -> Account | None:
    """Return the account to switch to, or None when this process does not run as root."""
    if os.geteuid() != 0:
        return None
    if folder.exists() and (owner := folder.stat()).st_uid != 0 and _is_known(owner.st_uid):
        return Account(uid=owner.st_uid, gid=owner.st_gid)
    entry = pwd.getpwnam(FALLBACK)
    return Account(uid=entry.pw_uid, gid=entry.pw_gid)


def _is_known(uid: int) -> bool:
    """Return whether the account has a name, which initdb requires."""
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def make_folder(folder: Path, account: Account | None) -> None:
    """Create a folder that only `account`, or the own account, can enter."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if account is not None:
        os.chown(folder, account.uid, account.gid)


def open_parents(path: Path, log: Logger) -> None:
    """Give other accounts search permission on the folders above `path`."""
    for folder in path.resolve().parents:
        mode = folder.stat().st_mode
        if not mode & stat.S_IXOTH:
            folder.chmod(stat.S_IMODE(mode) | stat.S_IXOTH)
            log.warning("folder.opened", folder=str(folder), reason="PostgreSQL cannot run as root")


def open_files(folder: Path) -> None:
    """Give other accounts read permission on what root installed under a strict umask."""
    if folder.stat().st_mode & stat.S_IROTH:
        return
    for path in (folder, *folder.rglob("*")):
        if path.is_symlink():
            continue
        mode = stat.S_IMODE(path.stat().st_mode)
        is_runnable = bool(mode & stat.S_IXUSR)
        path.chmod(mode | stat.S_IROTH | (stat.S_IXOTH if is_runnable else 0))
