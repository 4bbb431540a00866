"""What the database of a Temporal server holds: rows of open executions, all rows, bytes."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import asyncpg

RUNNING: Final = 1  # The status of an open execution.

# A row belongs to an execution by the id of its run, or of the tree of its history.
RUN_COLUMNS: Final = ("run_id", "tree_id")
OPEN: Final = f"SELECT run_id FROM current_executions WHERE status = {RUNNING}"
# The list for people names runs by text, the others by bytes.
LISTED: Final = "executions_visibility"
COUNT_LISTED: Final = f"SELECT count(*) FROM {LISTED} WHERE status = {RUNNING}"
COUNT_TIMERS: Final = "SELECT count(*) FROM timer_info_maps"
# Of PostgreSQL, whose tables have no index of their own text.
COLUMNS: Final = """
SELECT table_name, array_agg(column_name::text) AS columns
FROM information_schema.columns
WHERE table_schema = 'public'
GROUP BY table_name
"""
SIZE: Final = "SELECT pg_database_size(current_database())"


@dataclass(frozen=True, slots=True)
class Held:
    """What the database of a server holds at one moment."""

    open_rows: int
    all_rows: int
    file_bytes: int

    def __add__(self, other: "Held") -> "Held":
        return Held(
            self.open_rows + other.open_rows,
            self.all_rows + other.all_rows,
            self.file_bytes + other.file_bytes,
        )


class Store(Protocol):
    """The database of a server, as it is looked at from outside."""

    async def held(self) -> Held: ...

    async def count_timers(self) -> int: ...


@dataclass(frozen=True, slots=True)
class SqliteStore:
    """The file of a development server; its bytes include those of the write-ahead log."""

    file: Path

    async def held(self) -> Held:
        return await asyncio.to_thread(self._held)

    async def count_timers(self) -> int:
        """Return how many workflows sleep."""
        return await asyncio.to_thread(self._count_timers)

    def _held(self) -> Held:
        with self._connected() as db:
            tables = _tables(db)
            files = (self.file, self.file.with_name(f"{self.file.name}-wal"))
            return Held(
                open_rows=sum(_open_rows(db, table) for table in tables),
                all_rows=sum(_count(db, f"SELECT count(*) FROM {table}") for table in tables),
                file_bytes=sum(each.stat().st_size for each in files if each.exists()),
            )

    def _count_timers(self) -> int:
        with self._connected() as db:
            return _count(db, COUNT_TIMERS)

    @contextlib.contextmanager
    def _connected(self) -> Generator[sqlite3.Connection]:
        opened = sqlite3.connect(f"file:{self.file}?mode=ro", uri=True, timeout=30)
        with contextlib.closing(opened) as db:
            db.execute("BEGIN")  # One snapshot for all counts.
            yield db


def _tables(db: sqlite3.Connection) -> list[str]:
    rows = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return [name for (name,) in rows if "fts" not in name]  # Those are an index.


def _open_rows(db: sqlite3.Connection, table: str) -> int:
    columns = {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
    return sum(_count(db, query) for query in _open_queries(table, columns))


def _count(db: sqlite3.Connection, query: str) -> int:
    return int(db.execute(query).fetchone()[0])


def _open_queries(table: str, columns: set[str]) -> list[str]:
    """Return the queries that count the rows of open executions in a table."""
    if table == LISTED:
        return [COUNT_LISTED]
    return [
        f"SELECT count(*) FROM {table} WHERE {column} IN ({OPEN})"
        for column in RUN_COLUMNS
        if column in columns
    ]


@dataclass(frozen=True, slots=True)
class PostgresStore:
    """The databases of a server on PostgreSQL: executions first, then the list for people."""

    dsns: Sequence[str]

    async def held(self) -> Held:
        return sum([await self._held_in(dsn) for dsn in self.dsns], Held(0, 0, 0))

    async def count_timers(self) -> int:
        """Return how many workflows sleep."""
        db = await asyncpg.connect(self.dsns[0])
        try:
            return int(await db.fetchval(COUNT_TIMERS))
        finally:
            await db.close()

    async def _held_in(self, dsn: str) -> Held:
        db = await asyncpg.connect(dsn)
        try:
            async with db.transaction(isolation="repeatable_read"):
                tables = {row[0]: set(row[1]) for row in await db.fetch(COLUMNS)}
                queries = [query for name in tables for query in _open_queries(name, tables[name])]
                counts = [f"SELECT count(*) FROM {name}" for name in tables]
                return Held(
                    open_rows=sum([await db.fetchval(query) for query in queries]),
                    all_rows=sum([await db.fetchval(count) for count in counts]),
                    file_bytes=await db.fetchval(SIZE),
                )
        finally:
            await db.close()
