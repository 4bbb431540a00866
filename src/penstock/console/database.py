"""Find the database and connect: PENSTOCK_DATABASE_URL, or the server of the data folder."""

import asyncio
import getpass
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar

import asyncpg
import click

from penstock.base.log import get_logger
from penstock.base.meter import Meter
from penstock.base.settings import settings
from penstock.contract import Resources
from penstock.contract.resources import choose_vault
from penstock.postgres.embedded import find_running
from penstock.postgres.errors import BadMigration, DatabaseAway
from penstock.postgres.pool import Connection, connect, database_away, open_pool

T = TypeVar("T")

data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the embedded PostgreSQL, if no PENSTOCK_DATABASE_URL is set.  [.penstock]",
)

no_migrate_option = click.option(
    "--no-migrate",
    is_flag=True,
    help="Apply nothing; fail if this release cannot run on the schema.",
)

# Errors of PostgreSQL when the schema, or a newer part of it, is missing.
_UNMIGRATED = (
    asyncpg.InvalidSchemaNameError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedFunctionError,
    asyncpg.UndefinedTableError,
)


def ask(data_dir: Path | None, work: Callable[[Connection], Awaitable[T]]) -> T:
    """Run `work` on one connection to the configured database and return its result."""
    return asyncio.run(_ask(data_dir, work))


async def _ask(data_dir: Path | None, work: Callable[[Connection], Awaitable[T]]) -> T:
    async with connected(data_dir) as db:
        with migrated():
            return await work(db)


@asynccontextmanager
async def connected(data_dir: Path | None) -> AsyncGenerator[Connection]:
    """Open a connection; raises DatabaseAway if it cannot be opened, or is lost."""
    with database_away():
        db = await connect(find_dsn(data_dir))
        try:
            yield db
        finally:
            db.terminate()


@asynccontextmanager
async def lent_resources(data_dir: Path | None) -> AsyncGenerator[Resources]:
    """Yield the resources that a domain gets from an app, with a small pool and no app."""
    dsn = find_dsn(data_dir)
    with database_away():
        pool = await open_pool(dsn, min_size=1, max_size=2)
        try:
            yield Resources(
                pool=pool,
                settings=settings(),
                vault=choose_vault(dsn, data_dir),
                log=get_logger(),
                meter=Meter(),
            )
        finally:
            pool.terminate()


def find_dsn(data_dir: Path | None) -> str:
    """Return the address in the environment, or that of the server running in the data folder."""
    url = settings().database_url
    if url is not None:
        return url.get_secret_value()
    folder = data_dir or settings().data_dir
    running = find_running(folder)
    if running is None:
        raise DatabaseAway(
            f"PENSTOCK_DATABASE_URL is not set and no server runs in {folder} (start: penstock up)"
        )
    return running


@contextmanager
def migrated() -> Generator[None]:
    """Raise BadMigration, which names the remedy, if the schema is missing."""
    try:
        yield
    except _UNMIGRATED as missing:
        reason = "the database lacks it or a part of it; run: penstock migrate"
        raise BadMigration("penstock", "schema", reason) from missing


def operator() -> str:
    """Return the name of the system account, for the audit."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        # A container may run under a user id without a name.
        return f"cli:{os.getuid()}"
