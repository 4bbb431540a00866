"""Processes that start without migrating: they run on a schema that fits, and on no other."""

from pathlib import Path

import pytest

from penstock import Penstock
from penstock.postgres.errors import BadMigration
from penstock.postgres.pool import connect
from tests.database import run_sql
from tests.e2e.command import penstock

ROLE = "penstock_runner"
# Nothing listens there: the processes start without Kafka and Temporal, and keep trying.
NO_SERVERS = {"PENSTOCK_KAFKA_BOOTSTRAP": "127.0.0.1:1", "TEMPORAL_TARGET": "127.0.0.1:1"}


async def test_an_app_that_does_not_migrate_leaves_an_empty_database_empty(empty_dsn: str) -> None:
    with pytest.raises(BadMigration, match="0001_kernel: is not applied; run: penstock migrate"):
        async with Penstock(dsn=empty_dsn, migrates=False):
            pass

    connection = await connect(empty_dsn)
    assert await connection.fetchval("SELECT to_regnamespace('penstock')") is None
    await connection.close()


async def test_an_app_that_does_not_migrate_needs_no_right_to_change_the_schema(
    dsn: str,
) -> None:
    """The account that the processes use may then be weaker than that of a deployment."""
    await run_sql(dsn, f"DROP ROLE IF EXISTS {ROLE}")
    await run_sql(dsn, f"CREATE ROLE {ROLE} LOGIN PASSWORD 'secret'")
    await run_sql(dsn, f"GRANT USAGE ON SCHEMA penstock TO {ROLE}")
    await run_sql(dsn, f"GRANT ALL ON ALL TABLES IN SCHEMA penstock TO {ROLE}")
    await run_sql(dsn, f"GRANT ALL ON ALL SEQUENCES IN SCHEMA penstock TO {ROLE}")
    weaker = dsn.replace("//postgres@", f"//{ROLE}:secret@")

    async with Penstock(dsn=weaker, migrates=False) as app:
        account = await app.pool.fetchval("SELECT current_user")

    assert account == ROLE
    await run_sql(dsn, f"DROP OWNED BY {ROLE}")
    await run_sql(dsn, f"DROP ROLE {ROLE}")


each_process = pytest.mark.parametrize(
    ("arguments", "started"),
    [
        (("up", "--port", "0", "--no-worker"), "penstock is up"),
        (("serve", "--port", "0"), "penstock serves"),
        (("worker",), "penstock works on"),
        (("kafka", "consume"), "penstock takes events"),
        (("kafka", "consume", "payments"), "penstock takes payments"),
        (("temporal", "worker"), "penstock runs workers on Temporal"),
    ],
    ids=["up", "serve", "worker", "kafka events", "kafka payments", "temporal worker"],
)


@each_process
def test_a_process_starts_without_migrating_on_a_schema_that_fits(
    dsn: str, tmp_path: Path, *, arguments: tuple[str, ...], started: str
) -> None:
    environment = NO_SERVERS | {"PENSTOCK_DATABASE_URL": dsn}
    with penstock(*arguments, "--no-migrate", folder=tmp_path, environment=environment) as command:
        command.wait_for(started)

        assert command.stop() == 0


@each_process
def test_a_process_without_its_schema_says_what_to_run(
    empty_dsn: str, tmp_path: Path, *, arguments: tuple[str, ...], started: str
) -> None:
    environment = NO_SERVERS | {"PENSTOCK_DATABASE_URL": empty_dsn}
    with penstock(*arguments, "--no-migrate", folder=tmp_path, environment=environment) as command:
        code = command.wait()

    assert code == 1
    assert any("run: penstock migrate" in line for line in command.lines)
    assert not any(started in line for line in command.lines)
