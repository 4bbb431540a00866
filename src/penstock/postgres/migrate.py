"""Bring the schema forward: each owner ships `migrations/NNNN_name.sql`, never edited or undone.

Many processes may start at once: one migrates under an advisory lock, the others wait for it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from importlib.resources import files
from typing import LiteralString

from penstock.base.errors import BadMigration
from penstock.postgres.pool import Connection
from penstock.postgres.statement import read_sql, statement

MIGRATION_TIMEOUT = timedelta(minutes=30)  # An index on a table of 100M rows is built in this time.
LOCK_ID = 0x70656E73746F636B  # "penstock" in ASCII; every process asks for the same lock.

CREATE_LEDGER = statement(__package__, "create_ledger.sql")
LIST_APPLIED = statement(__package__, "list_applied.sql")
RECORD_MIGRATION = statement(__package__, "record_migration.sql")
LOCK_MIGRATIONS = statement(__package__, "lock_migrations.sql")
UNLOCK_MIGRATIONS = statement(__package__, "unlock_migrations.sql")

_NAME = re.compile(r"(?P<number>\d{4})_(?P<name>\w+)\.sql")
_TIMEOUT_SECONDS = MIGRATION_TIMEOUT.total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One file of one owner."""

    owner: str
    number: int
    name: str
    script: LiteralString

    @property
    def checksum(self) -> str:
        """Return the hash by which an edited file is noticed."""
        return sha256(self.script.encode()).hexdigest()


async def migrate(connection: Connection, owners: Sequence[str]) -> list[str]:
    """Apply what is missing, owner by owner in the given order, and return the names applied.

    Each file runs in a transaction of its own, so a failure leaves the earlier ones in place and a
    repeat goes on from there. Raises BadMigration when an applied file was edited, or when the
    database is newer than this release. `owners` are packages, such as "penstock.kernel".
    """
    shipped = {owner: read_migrations(owner) for owner in owners}
    await connection.execute(LOCK_MIGRATIONS, LOCK_ID, timeout=_TIMEOUT_SECONDS)
    try:
        await connection.execute(CREATE_LEDGER)
        missing = [
            migration
            for owner, migrations in shipped.items()
            for migration in await _missing(connection, owner, migrations)
        ]
        for migration in missing:
            await _apply(connection, migration)
    finally:
        if not connection.is_closed():
            await connection.execute(UNLOCK_MIGRATIONS, LOCK_ID)
    return [f"{migration.owner}/{migration.name}" for migration in missing]


def read_migrations(owner: str) -> list[Migration]:
    """Return the migrations that the package `owner` ships, in order."""
    names = sorted(entry.name for entry in (files(owner) / "migrations").iterdir())
    migrations = [_read(owner, name) for name in names if name.endswith(".sql")]
    for expected, migration in enumerate(migrations, start=1):
        if migration.number != expected:
            raise BadMigration(owner, migration.name, f"number {expected:04} was expected here")
    return migrations


def _read(owner: str, name: str) -> Migration:
    match = _NAME.fullmatch(name)
    if match is None:
        raise BadMigration(owner, name, "the name must look like 0001_what_it_does.sql")
    return Migration(
        owner=owner,
        number=int(match["number"]),
        name=name.removesuffix(".sql"),
        script=read_sql(owner, "migrations", name),
    )


async def _missing(
    connection: Connection, owner: str, migrations: list[Migration]
) -> list[Migration]:
    applied = {row["number"]: row for row in await connection.fetch(LIST_APPLIED, owner)}
    for number in applied.keys() - {migration.number for migration in migrations}:
        reason = "the database is newer than this release of Penstock; upgrade the code"
        raise BadMigration(owner, applied[number]["name"], reason)
    for migration in migrations:
        row = applied.get(migration.number)
        if row is not None and row["checksum"] != migration.checksum:
            reason = "the file was changed after it had been applied; add a new one instead"
            raise BadMigration(owner, migration.name, reason)
    return [migration for migration in migrations if migration.number not in applied]


async def _apply(connection: Connection, migration: Migration) -> None:
    async with connection.transaction():
        await connection.execute(migration.script, timeout=_TIMEOUT_SECONDS)
        await connection.execute(
            RECORD_MIGRATION,
            migration.owner,
            migration.number,
            migration.name,
            migration.checksum,
        )
