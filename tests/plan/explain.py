"""A connection that explains each statement at the moment when the kernel runs it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, LiteralString, cast

from penstock.postgres.pool import Connection, Row, Transaction

SCANS: LiteralString = """
SELECT relname, seq_scan, pg_relation_size(relid) AS bytes
FROM pg_stat_xact_user_tables
WHERE schemaname = 'penstock'
"""
EXPLAIN: LiteralString = "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON)"
BIG_BYTES = 1024 * 1024  # What a statement must not walk: anything that grows with the work.


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """What one statement did, and how."""

    query: str
    plan: dict[str, Any]
    walked: list[str]  # Big tables that were read from end to end, functions included.

    @property
    def buffers(self) -> int:
        """Pages that it touched, in whatever functions it called too.

        A WITH query that only writes runs after the main one, which does not count its pages.
        """
        read = {node["CTE Name"] for node in self.nodes() if node["Node Type"] == "CTE Scan"}
        only_write = [
            node
            for node in self.nodes()
            if (name := node.get("Subplan Name", "")).startswith("CTE ")
            and name.removeprefix("CTE ") not in read
        ]
        return sum(
            node["Shared Hit Blocks"] + node["Shared Read Blocks"]
            for node in (self.plan, *only_write)
        )

    def nodes(self) -> Iterator[dict[str, Any]]:
        yield from _nodes(self.plan)

    def indexes(self) -> set[str]:
        return {node["Index Name"] for node in self.nodes() if "Index Name" in node}

    def partitions_read(self, parent: str) -> set[str]:
        """Return the partitions of a table that were really looked into."""
        return {
            node["Relation Name"]
            for node in self.nodes()
            if node.get("Relation Name", "").startswith(f"{parent}_")
            and node["Actual Loops"] > 0
            and node["Node Type"] != "ModifyTable"
        }


@dataclass(slots=True)
class Explainer:
    """Stands where the kernel expects its connection, and belongs to one open transaction.

    Each statement is explained in a savepoint that is undone, then run. `transaction` gives
    savepoints as a connection does.
    """

    db: Connection
    explained: list[Explained] = field(default_factory=list)

    def of(self, query: str) -> Explained:
        """Return the last explanation of a statement."""
        return next(each for each in reversed(self.explained) if each.query == query)

    def connection(self) -> Connection:
        return cast("Connection", self)

    def transaction(self) -> Transaction:
        return self.db.transaction()

    async def fetch(self, query: LiteralString, *args: Any, timeout: float = 60) -> list[Row]:
        await self._explain(query, args)
        return await self.db.fetch(query, *args, timeout=timeout)

    async def fetchrow(self, query: LiteralString, *args: Any, timeout: float = 60) -> Row | None:
        await self._explain(query, args)
        return await self.db.fetchrow(query, *args, timeout=timeout)

    async def fetchval(self, query: LiteralString, *args: Any, timeout: float = 60) -> Any:
        await self._explain(query, args)
        return await self.db.fetchval(query, *args, timeout=timeout)

    async def execute(self, query: LiteralString, *args: Any) -> str:
        if args:
            await self._explain(query, args)
        return await self.db.execute(query, *args)

    async def copy_records_to_table(self, table_name: str, **options: Any) -> str:
        return await self.db.copy_records_to_table(table_name, **options)

    async def _explain(self, query: LiteralString, args: tuple[Any, ...]) -> None:
        """Explain it twice: the first time, what functions plan and look up in catalogs counts."""
        await self._run_undone(query, args)
        self.explained.append(await self._run_undone(query, args))

    async def _run_undone(self, query: LiteralString, args: tuple[Any, ...]) -> Explained:
        savepoint = self.db.transaction()
        await savepoint.start()
        await self.db.execute(f"PREPARE explained AS {query}")
        literals = await _literals(self.db, args)
        before = await _scans(self.db)
        text = await self.db.fetchval(f"{EXPLAIN} EXECUTE explained {literals}")
        after = await _scans(self.db)
        await savepoint.rollback()
        await self.db.execute("DEALLOCATE explained")
        plan = json.loads(text)[0]["Plan"]
        walked = sorted(name for name in after if after[name] > before.get(name, 0))
        return Explained(query=query, plan=plan, walked=walked)


async def _literals(db: Connection, args: tuple[Any, ...]) -> LiteralString:
    """Return the arguments as EXECUTE wants them, since it takes no parameters itself."""
    types: list[str] = await db.fetchval(
        "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'explained'"
    )
    literals: list[str] = []
    for arg, its_type in zip(args, types, strict=True):
        query = f"SELECT quote_nullable($1::{its_type}::text)"
        literals.append(await db.fetchval(cast("LiteralString", query), arg))
    return cast("LiteralString", f"({', '.join(literals)})" if literals else "")


async def _scans(db: Connection) -> dict[str, int]:
    rows = await db.fetch(SCANS)
    return {row["relname"]: row["seq_scan"] for row in rows if row["bytes"] > BIG_BYTES}


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)
