"""Migrations: forward, once, together, and in two halves that the previous release survives."""

import asyncio

import pytest

from penstock.base.aio import spawn
from penstock.postgres.errors import BadMigration
from penstock.postgres.migrate import check, compare, migrate
from penstock.postgres.pool import Connection, connect
from penstock.postgres.steps import read_steps
from tests.migration.package import MigrationPackage


async def test_migrations_are_applied_in_order_and_only_once(
    connection: Connection, package: MigrationPackage
) -> None:
    first = await migrate(connection, [package.name])
    second = await migrate(connection, [package.name])

    assert first == [f"{package.name}/0001_start", f"{package.name}/0002_grow"]
    assert second == []
    assert await connection.fetchval("SELECT count(*) FROM apple") == 2


async def test_many_processes_may_migrate_at_once(
    empty_dsn: str, package: MigrationPackage
) -> None:
    """A deployment starts all its workers together."""
    connections = [await connect(empty_dsn) for _ in range(5)]

    applied = await asyncio.gather(
        *(migrate(connection, [package.name]) for connection in connections)
    )

    assert sorted(map(len, applied)) == [0, 0, 0, 0, 2]
    assert await connections[0].fetchval("SELECT count(*) FROM apple") == 2
    for connection in connections:
        await connection.close()


async def test_an_applied_file_that_was_edited_is_refused(
    connection: Connection, package: MigrationPackage
) -> None:
    """Two databases with the same numbers and different schemas could never be told apart."""
    await migrate(connection, [package.name])
    package.write("0002_grow.sql", "INSERT INTO apple VALUES (3);")

    with pytest.raises(BadMigration, match="0002_grow: the file was changed"):
        await migrate(connection, [package.name])


async def test_a_failing_file_leaves_nothing_and_can_be_repeated(
    connection: Connection, package: MigrationPackage
) -> None:
    package.write("0003_break.sql", "INSERT INTO apple VALUES (3); SELECT 1 / 0;")

    with pytest.raises(Exception, match="division by zero"):
        await migrate(connection, [package.name])
    package.write("0003_break.sql", "INSERT INTO apple VALUES (3);")
    repeated = await migrate(connection, [package.name])

    assert repeated == [f"{package.name}/0003_break"]
    assert await connection.fetchval("SELECT count(*) FROM apple") == 3


async def test_a_lock_is_not_kept_after_a_failure(
    connection: Connection, empty_dsn: str, package: MigrationPackage
) -> None:
    """The next process would wait for half an hour."""
    package.write("0003_break.sql", "SELECT 1 / 0;")
    with pytest.raises(Exception, match="division by zero"):
        await migrate(connection, [package.name])
    package.remove("0003_break.sql")
    other = await connect(empty_dsn)
    applied = await migrate(other, [package.name])
    await other.close()

    assert applied == []


@pytest.mark.parametrize("file", ["0004_gap.sql", "3_short.sql", "0003 space.sql"])
def test_a_file_out_of_line_is_refused(package: MigrationPackage, file: str) -> None:
    package.write(file, "SELECT 1;")

    with pytest.raises(BadMigration):
        read_steps(package.name)


async def test_a_step_that_waits_for_a_long_transaction_stops_nobody(
    connection: Connection, empty_dsn: str, package: MigrationPackage
) -> None:
    """Whoever needs the table queues behind a lock that waits: all workers would stand still."""
    await migrate(connection, [package.name])
    package.write("0003_grow_more.sql", "ALTER TABLE apple ADD COLUMN size int;")
    reader, worker = await connect(empty_dsn), await connect(empty_dsn)
    async with asyncio.TaskGroup() as group, reader.transaction():
        await reader.fetch("SELECT id FROM apple")
        migrating = spawn(group, migrate(connection, [package.name]))
        while not await worker.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            continue

        await worker.execute("INSERT INTO apple VALUES (3)")

        assert not migrating.done()
    applied = migrating.result()

    assert applied == [f"{package.name}/0003_grow_more"]
    await reader.close()
    await worker.close()


# ------------------------------------------------------------------------------- pre and post


@pytest.fixture
def halves(package: MigrationPackage) -> MigrationPackage:
    """A release that renames a column: it adds the new one first and removes the old one later."""
    package.write("0003_pre_add_size.sql", "ALTER TABLE apple ADD COLUMN size int;")
    package.write("0004_post_drop_id.sql", "ALTER TABLE apple DROP COLUMN id;")
    return package


async def columns_of(connection: Connection) -> list[str]:
    rows = await connection.fetch(
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'apple' ORDER BY 1"
    )
    return [row["column_name"] for row in rows]


async def test_a_post_step_waits_until_it_is_asked_for(
    connection: Connection, halves: MigrationPackage
) -> None:
    """Processes of the previous release still read what it removes."""
    first = await migrate(connection, [halves.name])
    between = await columns_of(connection)
    second = await migrate(connection, [halves.name], post=True)

    assert first[-1] == f"{halves.name}/0003_pre_add_size"
    assert between == ["id", "size"]
    assert second == [f"{halves.name}/0004_post_drop_id"]
    assert await columns_of(connection) == ["size"]


async def test_the_next_release_applies_the_post_steps_of_the_one_before(
    connection: Connection, halves: MigrationPackage
) -> None:
    """Nobody has to remember them, and only neighbouring releases run side by side."""
    await migrate(connection, [halves.name])
    halves.write("0005_pre_add_colour.sql", "ALTER TABLE apple ADD COLUMN colour text;")
    halves.write("0006_post_drop_size.sql", "ALTER TABLE apple DROP COLUMN size;")

    applied = await migrate(connection, [halves.name])

    assert applied == [f"{halves.name}/0005_pre_add_colour", f"{halves.name}/0004_post_drop_id"]
    assert await columns_of(connection) == ["colour", "size"]


async def test_a_post_step_may_remove_what_texts_of_an_older_release_use(
    connection: Connection, package: MigrationPackage
) -> None:
    """With a release left out, its functions replace the older ones before its post step runs."""
    package.define("apples", "CREATE OR REPLACE VIEW public.apples AS SELECT id FROM apple;")
    await migrate(connection, [package.name])
    package.write("0003_pre_add_size.sql", "ALTER TABLE apple ADD COLUMN size int;")
    package.write("0004_post_drop_id.sql", "ALTER TABLE apple DROP COLUMN id;")
    package.write("0005_pre_add_colour.sql", "ALTER TABLE apple ADD COLUMN colour text;")
    package.define("apples", "CREATE OR REPLACE VIEW public.apples AS SELECT size FROM apple;")

    await migrate(connection, [package.name])

    assert await columns_of(connection) == ["colour", "size"]


async def test_the_previous_release_can_start_between_the_halves(
    connection: Connection, package: MigrationPackage
) -> None:
    """A process that crashes during an upgrade comes back, and code can be rolled back."""
    await migrate(connection, [package.name])
    previous = package.release()
    package.write("0003_pre_add_size.sql", "ALTER TABLE apple ADD COLUMN size int;")
    package.write("0004_post_drop_id.sql", "ALTER TABLE apple DROP COLUMN id;")
    await migrate(connection, [package.name])

    package.install(previous)
    applied = await migrate(connection, [package.name])
    await check(connection, [package.name])

    assert applied == []
    assert await columns_of(connection) == ["id", "size"]


async def test_a_release_is_refused_once_an_unknown_post_step_was_applied(
    connection: Connection, package: MigrationPackage
) -> None:
    """It would read what is gone."""
    await migrate(connection, [package.name])
    previous = package.release()
    package.write("0003_post_drop_id.sql", "ALTER TABLE apple DROP COLUMN id;")
    await migrate(connection, [package.name], post=True)

    package.install(previous)

    with pytest.raises(BadMigration, match="0003_post_drop_id: a newer release has applied it"):
        await migrate(connection, [package.name])
    with pytest.raises(BadMigration, match="0003_post_drop_id: a newer release has applied it"):
        await check(connection, [package.name])


# -------------------------------------------------------------------------- without migrating


async def test_what_is_missing_is_listed_and_not_applied(
    connection: Connection, halves: MigrationPackage
) -> None:
    nothing = (await compare(connection, [halves.name])).missing
    await migrate(connection, [halves.name])
    halves.define("one", "CREATE OR REPLACE FUNCTION public.one() RETURNS int RETURN 1;")

    between = (await compare(connection, [halves.name])).missing
    with_post = (await compare(connection, [halves.name], post=True)).missing

    assert nothing == [
        f"{halves.name}/{name}" for name in ("0001_start", "0002_grow", "0003_pre_add_size")
    ]
    assert between == [f"{halves.name}/functions/one"]
    assert with_post == [f"{halves.name}/0004_post_drop_id", f"{halves.name}/functions/one"]


async def test_a_check_refuses_a_database_that_lacks_a_step_or_a_function(
    connection: Connection, halves: MigrationPackage
) -> None:
    """A process that must not migrate must not run on half a schema either."""
    with pytest.raises(BadMigration, match="0001_start: is not applied; run: penstock migrate"):
        await check(connection, [halves.name])
    await migrate(connection, [halves.name])
    await check(connection, [halves.name])
    halves.define("one", "CREATE OR REPLACE FUNCTION public.one() RETURNS int RETURN 1;")

    with pytest.raises(BadMigration, match="functions/one: is not applied"):
        await check(connection, [halves.name])


# -------------------------------------------------------------------------------------- squash


async def test_a_step_that_replaces_the_applied_ones_is_not_run(
    connection: Connection, package: MigrationPackage
) -> None:
    """A database that went the long way has its result already, and its data."""
    await migrate(connection, [package.name])
    package.remove("0002_grow.sql")
    squashed = "-- replaces: 0001_start, 0002_grow\nCREATE TABLE apple (id int);"
    package.write("0001_start.sql", squashed)
    package.write("0002_pick.sql", "DELETE FROM apple WHERE id = 1;")

    applied = await migrate(connection, [package.name])
    again = await migrate(connection, [package.name])

    assert applied == [f"{package.name}/0002_pick"]
    assert again == []
    assert await connection.fetchval("SELECT array_agg(id) FROM apple") == [2]


async def test_a_database_that_has_only_some_of_the_replaced_steps_is_refused(
    connection: Connection, package: MigrationPackage
) -> None:
    package.remove("0002_grow.sql")
    await migrate(connection, [package.name])
    package.write(
        "0001_start.sql", "-- replaces: 0001_start, 0002_grow\nCREATE TABLE apple (id int);"
    )

    with pytest.raises(BadMigration, match="0001_start: the file was changed"):
        await migrate(connection, [package.name])
