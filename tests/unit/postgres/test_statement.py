"""Every shipped statement, prepared against the shipped schema."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import LiteralString, cast

import pytest

import penstock
from penstock.postgres.embedded import Server
from penstock.postgres.pool import connect
from tests.database import copy_database, run_sql

DATABASE = "statements"
SOURCE = Path(penstock.__file__).parent
# The migration tables are created by two statements, before there is a schema to prepare against.
STATEMENTS = [
    path for path in sorted(SOURCE.rglob("sql/*.sql")) if path.stem != "create_migration_tables"
]
# What a session creates for itself before it runs a statement.
NEEDS = {"clear_staging.sql": "create_staging.sql", "enqueue_staged.sql": "create_staging.sql"}


@pytest.fixture(scope="module")
async def shared_dsn(server: Server, template: str) -> AsyncGenerator[str]:
    """The address of a database for all statements: preparing one leaves nothing behind."""
    yield await copy_database(server.dsn, template, DATABASE)
    await run_sql(server.dsn, f"DROP DATABASE {DATABASE} WITH (FORCE)")


@pytest.mark.parametrize("path", STATEMENTS, ids=lambda path: f"{path.parts[-3]}/{path.name}")
async def test_a_statement_fits_the_schema(shared_dsn: str, path: Path) -> None:
    """A misspelt column is found here and not in production."""
    connection = await connect(shared_dsn)  # Temporary tables end with the session.
    if path.name in NEEDS:
        await connection.execute(read(path.with_name(NEEDS[path.name])))

    await connection.prepare(read(path))

    await connection.close()


def read(path: Path) -> LiteralString:
    return cast("LiteralString", path.read_text(encoding="utf-8"))
