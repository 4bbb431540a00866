"""What tests do to whole databases. Fixtures are in conftest."""

from typing import LiteralString, cast
from urllib.parse import urlsplit

from penstock.base.log import get_logger
from penstock.postgres.pool import Connection, connect, keep_trying

MIGRATION_PACKAGES = [
    "penstock.kernel",
    "penstock.domains.slots",
    "penstock.domains.webhooks",
    "penstock.domains.mail",
    "penstock.domains.outbox",
    "penstock.domains.payments",
]


async def run_sql(dsn: str, sql: str) -> None:
    """Run one statement that takes no parameters, such as CREATE DATABASE."""
    connection = await connect(dsn)
    await run_on(connection, sql)
    await connection.close()


async def run_on(connection: Connection, sql: str) -> None:
    """Run one statement that takes no parameters on a connection that is open."""
    await connection.execute(cast("LiteralString", sql))


async def copy_database(dsn: str, template: str, name: str) -> str:
    """Create a database as a copy of a template, and return its address."""
    await run_sql(dsn, copy_of(template, name))
    return database_dsn(dsn, name)


def copy_of(template: str, name: str) -> str:
    """Return the statement that copies a template.

    By files: this takes 12 ms of CPU time. Through the log, which is the default, it takes 45.
    """
    return f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY"


def database_dsn(dsn: str, database: str) -> str:
    """Return `dsn` with another database name."""
    return urlsplit(dsn)._replace(path=f"/{database}").geturl()


async def wait_until_up(dsn: str) -> None:
    """Return once the server accepts connections."""

    async def call_on_it() -> None:
        await (await connect(dsn)).close()

    await keep_trying(call_on_it, dsn=dsn, log=get_logger())
