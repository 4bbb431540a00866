"""Two roles, as the page on production shows them: one changes the schema, the other runs."""

import itertools
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from penstock import Done
from penstock.base.errors import BadSetting
from penstock.base.log import get_logger
from penstock.base.meter import Meter
from penstock.kernel.enqueue import enqueue
from penstock.kernel.inspect import read_item
from penstock.kernel.item import NewItem
from penstock.kernel.lane import create_lane
from penstock.kernel.retain import open_days, retain
from penstock.kernel.sweep import sweep
from penstock.postgres.embedded import Server
from penstock.postgres.errors import MigrationDenied
from penstock.postgres.migrate import migrate
from penstock.postgres.pool import Connection, connect, open_pool
from tests.database import MIGRATION_PACKAGES, copy_of, database_dsn, run_on, run_sql
from tests.docs.pages import ROOT, blocks_of
from tests.e2e.command import Command, penstock
from tests.kernel.scene import attempt_once, put, state_of
from tests.migration.package import MigrationPackage

PAGE = ROOT / "docs" / "howto" / "run-in-production.md"
ROLES, GRANTS = (block.code for block in blocks_of(PAGE, "pgsql"))
CREATE_ROLES, GRANT_ON_DATABASE = ROLES.strip().rsplit("\n", 1)
MIGRATED = "roles_migrated"

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dsns:
    """Addresses of one database: for the role that migrates, and for the one that runs."""

    superuser: str
    owner: str
    app: str


def dsns_of(superuser: str) -> Dsns:
    return Dsns(
        superuser=superuser,
        owner=superuser.replace("//postgres@", "//penstock_owner:secret@"),
        app=superuser.replace("//postgres@", "//penstock_app:secret@"),
    )


@pytest.fixture(scope="module")
async def migrated(server: Server, maintenance: Connection) -> AsyncGenerator[str]:
    """The name of a database that one role has migrated, with the page's grants for the other.

    The roles exist as long as it does: they belong to the server, not to a database.
    """
    await run_on(maintenance, f"CREATE DATABASE {MIGRATED}")
    dsns = dsns_of(database_dsn(server.dsn, MIGRATED))
    await run_sql(dsns.superuser, CREATE_ROLES + on_database(MIGRATED))
    connection = await connect(dsns.owner)
    await migrate(connection, MIGRATION_PACKAGES)
    await connection.close()
    await run_sql(dsns.owner, GRANTS)
    yield MIGRATED
    await run_on(maintenance, f"DROP DATABASE {MIGRATED} WITH (FORCE)")
    for role in ("penstock_app", "penstock_owner"):
        await run_on(maintenance, f"DROP ROLE {role}")


@pytest.fixture
async def granted(
    server: Server, *, migrated: str, maintenance: Connection
) -> AsyncGenerator[Dsns]:
    """A copy of that database. A copy has no grants on the database itself."""
    name = f"granted_{next(_numbers)}"
    await run_on(maintenance, copy_of(migrated, name))
    await run_on(maintenance, on_database(name))
    yield dsns_of(database_dsn(server.dsn, name))
    await run_on(maintenance, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def dsns(empty_dsn: str) -> Dsns:
    """A database that is not migrated; the roles are those of `migrated`."""
    await run_sql(empty_dsn, on_database(urlsplit(empty_dsn).path[1:]))
    return dsns_of(empty_dsn)


def on_database(name: str) -> str:
    """Return the page's grant for another database."""
    return GRANT_ON_DATABASE.replace("DATABASE shop", f"DATABASE {name}")


def started(command: Command) -> int:
    """Return the exit code of a process that was let work for a moment."""
    command.wait_for("penstock (is up|serves|works on)")
    return command.stop()


@pytest.mark.parametrize("options", [(), ("--no-migrate",)], ids=["migrating", "not migrating"])
@pytest.mark.parametrize(
    "arguments",
    [("up", "--port", "0"), ("serve", "--port", "0"), ("worker",)],
    ids=["up", "serve", "worker"],
)
def test_a_process_starts_with_a_role_that_may_not_change_the_schema(
    granted: Dsns, tmp_path: Path, *, arguments: tuple[str, ...], options: tuple[str, ...]
) -> None:
    """Nothing is to be applied, so nothing may be asked for."""
    environment = {"PENSTOCK_DATABASE_URL": granted.app}

    with penstock(*arguments, *options, folder=tmp_path, environment=environment) as command:
        assert started(command) == 0

    assert not any("[error" in line or "denied" in line for line in command.lines)


async def test_a_worker_with_that_role_runs_items(granted: Dsns, tmp_path: Path) -> None:
    app = "from penstock import Item, Penstock\napp = Penstock()\n"
    handler = "@app.handler('mail')\nasync def send(item: Item[int]) -> None:\n    print('sent')\n"
    (tmp_path / "mail.py").write_text(app + handler)
    environment = {"PENSTOCK_DATABASE_URL": granted.app}
    with penstock("worker", "--app", "mail:app", folder=tmp_path, environment=environment) as run:
        run.wait_for("worker.started")
        connection = await connect(granted.app)
        await enqueue(connection, "mail", NewItem(payload=1))
        await connection.close()

        run.wait_for("sent")

        assert run.stop() == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("doctor",),
        ("migrate", "--check"),
        ("migrate",),
        ("lane", "set", "mail", "--create", "rate=5"),
        ("key", "create", "ci", "--scope", "produce"),
        ("event", "send", "order.paid", "{}"),
        ("slots", "assign", "e-1", "--at", "+5m"),
        ("subscription", "list"),
    ],
    ids=" ".join,
)
def test_commands_work_with_that_role(
    granted: Dsns, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    environment = {"PENSTOCK_DATABASE_URL": granted.app}

    with penstock(*arguments, folder=tmp_path, environment=environment) as command:
        assert command.wait() == 0, command.lines


async def test_a_sweeper_with_that_role_opens_drops_and_trims_days(granted: Dsns) -> None:
    """Otherwise ids would stay in the block of the day on which the schema was created."""
    pool = await open_pool(granted.app, min_size=1, max_size=2)
    today = datetime.now(UTC)
    later = today + timedelta(days=3)
    async with pool.acquire() as db:
        lane = await create_lane(db, "mail", who="test", retention=timedelta(days=1))
        done = await put(db, lane, at=today)
        await attempt_once(db, lane, Done(), now=today)
        waiting = await put(db, lane, at=today)
        await sweep(
            pool, meter=Meter(), log=get_logger(), now=later
        )  # Drops tomorrow, it is empty.
        next_item = await put(db, lane, at=later)
        await sweep(pool, meter=Meter(), log=get_logger(), now=later)  # Trims today.
        trimmed = await read_item(db, done)
        dropped = (await retain(db, now=later + timedelta(days=1))).dropped
        moved = await state_of(db, waiting)
    pool.terminate()

    assert next_item >> 32 == (waiting >> 32) + 3
    assert trimmed is None
    assert dropped == [today.date().isoformat()]
    assert moved == "ready"


async def test_days_are_left_alone_by_a_role_that_may_only_read(granted: Dsns) -> None:
    """The functions run as the owner, so they must not do what the caller could not do anyway."""
    await run_sql(
        granted.owner, "REVOKE INSERT, DELETE ON ALL TABLES IN SCHEMA penstock FROM penstock_app"
    )
    connection = await connect(granted.app)

    with pytest.raises(asyncpg.InsufficientPrivilegeError, match=r"needs INSERT on penstock\.item"):
        await open_days(connection)
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match=r"needs DELETE on penstock\.item"):
        await connection.execute("SELECT penstock.drop_day('2020-01-01', now())")
    await connection.close()


async def test_what_is_missing_is_named_and_who_may_apply_it(
    granted: Dsns, package: MigrationPackage
) -> None:
    connection = await connect(granted.app)

    with pytest.raises(MigrationDenied) as denied:
        await migrate(connection, [*MIGRATION_PACKAGES, package.name])

    assert denied.value.migrations == (f"{package.name}/0001_start", f"{package.name}/0002_grow")
    assert (denied.value.role, denied.value.schema_owner) == ("penstock_app", "penstock_owner")
    assert "run: penstock migrate, as the role 'penstock_owner'" in str(denied.value)
    await connection.close()


async def test_the_owner_of_the_schema_needs_no_right_on_the_database_later(
    granted: Dsns, package: MigrationPackage
) -> None:
    database = urlsplit(granted.superuser).path[1:]
    await run_sql(granted.superuser, f"REVOKE CREATE ON DATABASE {database} FROM penstock_owner")
    package.write("0001_start.sql", "CREATE TABLE penstock.apple (id int);")
    package.write("0002_grow.sql", "INSERT INTO penstock.apple VALUES (2);")
    connection = await connect(granted.owner)

    applied = await migrate(connection, [*MIGRATION_PACKAGES, package.name])
    await connection.close()
    running = await connect(granted.app)

    assert len(applied) == 2
    assert await running.fetchval("SELECT id FROM penstock.apple") == 2
    await running.close()


@pytest.mark.usefixtures("migrated")
def test_a_worker_that_may_not_create_the_schema_says_so_in_one_line(
    dsns: Dsns, tmp_path: Path
) -> None:
    environment = {"PENSTOCK_DATABASE_URL": dsns.app}
    with penstock("worker", folder=tmp_path, environment=environment) as command:
        assert command.wait() == 1

    (line,) = command.lines
    assert "not applied: penstock.kernel/0001_kernel" in line
    assert "as a role that has CREATE on the database" in line


async def test_the_error_for_a_role_names_the_missing_grants(granted: Dsns) -> None:
    await run_sql(granted.owner, "REVOKE USAGE ON SCHEMA penstock FROM penstock_app")
    connection = await connect(granted.app)

    with pytest.raises(BadSetting, match="permission denied for schema penstock; the role needs"):
        await migrate(connection, MIGRATION_PACKAGES)
    await connection.close()
