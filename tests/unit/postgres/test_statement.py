"""Every shipped statement, prepared against the shipped schema."""

from pathlib import Path
from typing import LiteralString, cast

import pytest

import penstock
from penstock.postgres.pool import Pool

SOURCE = Path(penstock.__file__).parent
# The ledger is created by two statements, before there is a schema to prepare against.
STATEMENTS = [path for path in sorted(SOURCE.rglob("sql/*.sql")) if path.stem != "create_ledger"]
# What a session creates for itself before it runs a statement.
NEEDS = {"clear_staging.sql": "create_staging.sql", "enqueue_staged.sql": "create_staging.sql"}


@pytest.mark.parametrize("path", STATEMENTS, ids=lambda path: f"{path.parts[-3]}/{path.name}")
async def test_a_statement_fits_the_schema(db: Pool, path: Path) -> None:
    """A misspelt column is found here and not in production."""
    async with db.acquire() as connection:
        if path.name in NEEDS:
            await connection.execute(read(path.with_name(NEEDS[path.name])))

        await connection.prepare(read(path))


def read(path: Path) -> LiteralString:
    return cast("LiteralString", path.read_text(encoding="utf-8"))
