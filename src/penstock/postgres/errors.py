"""The errors of the database and of the embedded server.

PenstockError
├── BadMigration, MigrationDenied
└── Unavailable: DataFolderBusy, EmbeddedFailed
    └── DatabaseAway: DatabaseFull, DatabaseReadOnly
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from penstock.base.errors import Exposure, PenstockError, Unavailable


@dataclass(eq=False)
class BadMigration(PenstockError):
    """The database does not match the migrations of this release."""

    code: ClassVar[str] = "bad-migration"
    owner: str
    migration: str
    reason: str

    def __str__(self) -> str:
        return f"migration {self.owner}/{self.migration}: {self.reason}"


@dataclass(eq=False)
class MigrationDenied(PenstockError):
    """Migrations are missing, and the database role may not apply them.

    `schema_owner` is the role that may, or None if the schema does not exist yet.
    """

    code: ClassVar[str] = "migration-denied"
    migrations: tuple[str, ...]
    role: str
    schema_owner: str | None

    def __str__(self) -> str:
        who = (
            f"the role {self.schema_owner!r}, which owns the schema"
            if self.schema_owner
            else "a role that has CREATE on the database"
        )
        return (
            f"not applied: {', '.join(self.migrations)}; the role {self.role!r} may not change the "
            f"schema; run: penstock migrate, as {who}"
        )


@dataclass(eq=False)
class DatabaseAway(Unavailable):
    """The database cannot be reached."""

    code: ClassVar[str] = "database-away"
    exposes: ClassVar[Exposure] = "code"
    reason: str

    def __str__(self) -> str:
        return f"the database is unavailable: {self.reason}"


class DatabaseFull(DatabaseAway):
    """The disk of the database is full: it reads, and writes nothing."""

    code: ClassVar[str] = "database-full"


class DatabaseReadOnly(DatabaseAway):
    """The database takes no writes: it is a replica, or was set to read-only."""

    code: ClassVar[str] = "database-read-only"


@dataclass(eq=False)
class DataFolderBusy(Unavailable):
    """Another process runs the embedded server of this folder."""

    code: ClassVar[str] = "data-folder-busy"
    path: Path
    pid: int | None

    def __str__(self) -> str:
        holder = f"process {self.pid}" if self.pid else "another process"
        return f"the data folder {self.path} is in use by {holder}"


@dataclass(eq=False)
class EmbeddedFailed(Unavailable):
    """The embedded PostgreSQL did not start or stop; `reason` ends with its last log lines."""

    code: ClassVar[str] = "embedded-failed"
    path: Path
    reason: str

    def __str__(self) -> str:
        return f"the embedded PostgreSQL in {self.path} failed: {self.reason}"
