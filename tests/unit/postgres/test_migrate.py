"""Migrations: forward, once, together, and never behind somebody's back."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from penstock.base.errors import BadMigration
from penstock.postgres.migrate import migrate, read_migrations
from penstock.postgres.pool import Connection, connect


class Owner:
    """A package with migrations, written for one test."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.folder = folder / name / "migrations"
        self.folder.mkdir(parents=True)
        (folder / name / "__init__.py").write_text("")

    def write(self, file: str, sql: str) -> None:
        (self.folder / file).write_text(sql)


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Owner:
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"owner_{abs(hash(tmp_path))}"
    assert name not in sys.modules
    owner = Owner(tmp_path, name)
    owner.write("0001_start.sql", "CREATE TABLE apple (id int); INSERT INTO apple VALUES (1);")
    owner.write("0002_grow.sql", "INSERT INTO apple VALUES (2);")
    return owner


@pytest.fixture
async def connection(empty_dsn: str) -> AsyncGenerator[Connection]:
    opened = await connect(empty_dsn)
    yield opened
    await opened.close()


async def test_migrations_are_applied_in_order_and_only_once(
    connection: Connection, owner: Owner
) -> None:
    first = await migrate(connection, [owner.name])
    second = await migrate(connection, [owner.name])

    assert first == [f"{owner.name}/0001_start", f"{owner.name}/0002_grow"]
    assert second == []
    assert await connection.fetchval("SELECT count(*) FROM apple") == 2


async def test_many_processes_may_migrate_at_once(empty_dsn: str, owner: Owner) -> None:
    """A deployment starts all its workers together."""
    connections = [await connect(empty_dsn) for _ in range(5)]

    applied = await asyncio.gather(
        *(migrate(connection, [owner.name]) for connection in connections)
    )

    assert sorted(map(len, applied)) == [0, 0, 0, 0, 2]
    assert await connections[0].fetchval("SELECT count(*) FROM apple") == 2
    for connection in connections:
        await connection.close()


async def test_an_applied_file_that_was_edited_is_refused(
    connection: Connection, owner: Owner
) -> None:
    """Two databases with the same numbers and different schemas could never be told apart."""
    await migrate(connection, [owner.name])
    owner.write("0002_grow.sql", "INSERT INTO apple VALUES (3);")

    with pytest.raises(BadMigration, match="0002_grow: the file was changed"):
        await migrate(connection, [owner.name])


async def test_a_database_newer_than_the_code_is_refused(
    connection: Connection, owner: Owner
) -> None:
    """An old release must not write to a schema that it does not know."""
    await migrate(connection, [owner.name])
    (owner.folder / "0002_grow.sql").unlink()

    with pytest.raises(BadMigration, match="newer than this release"):
        await migrate(connection, [owner.name])


async def test_a_failing_file_leaves_nothing_and_can_be_repeated(
    connection: Connection, owner: Owner
) -> None:
    owner.write("0003_break.sql", "INSERT INTO apple VALUES (3); SELECT 1 / 0;")

    with pytest.raises(Exception, match="division by zero"):
        await migrate(connection, [owner.name])
    owner.write("0003_break.sql", "INSERT INTO apple VALUES (3);")
    repeated = await migrate(connection, [owner.name])

    assert repeated == [f"{owner.name}/0003_break"]
    assert await connection.fetchval("SELECT count(*) FROM apple") == 3


async def test_a_lock_is_not_kept_after_a_failure(
    connection: Connection, empty_dsn: str, owner: Owner
) -> None:
    """The next process would wait for half an hour."""
    owner.write("0003_break.sql", "SELECT 1 / 0;")
    with pytest.raises(Exception, match="division by zero"):
        await migrate(connection, [owner.name])
    (owner.folder / "0003_break.sql").unlink()
    other = await connect(empty_dsn)
    applied = await migrate(other, [owner.name])
    await other.close()

    assert applied == []


@pytest.mark.parametrize("file", ["0004_gap.sql", "3_short.sql", "0003 space.sql"])
def test_a_file_out_of_line_is_refused(owner: Owner, file: str) -> None:
    owner.write(file, "SELECT 1;")

    with pytest.raises(BadMigration):
        read_migrations(owner.name)
