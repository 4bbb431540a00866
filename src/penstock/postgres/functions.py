"""Functions, views and triggers as files: `functions/<name>.sql` of a package, one object each.

Applied when the text is newer than the one in the database, in the order of their references.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from graphlib import CycleError, TopologicalSorter
from hashlib import sha256
from importlib.resources import files
from typing import LiteralString

import asyncpg

from penstock.postgres.errors import BadMigration
from penstock.postgres.pool import Connection, Row
from penstock.postgres.statement import composed_by_server, read_sql, statement

FUNCTION_TIMEOUT = timedelta(minutes=30)  # A view waits for the reports that read it.

LIST_FUNCTIONS = statement(__package__, "list_functions.sql")
RECORD_FUNCTION = statement(__package__, "record_function.sql")
COUNT_OVERLOADS = statement(__package__, "count_overloads.sql")
DROP_STATEMENTS = statement(__package__, "drop_statements.sql")

_HEAD = re.compile(
    r"CREATE OR REPLACE (?:"
    r"(?P<kind>FUNCTION|VIEW) (?P<schema>\w+)\.(?P<name>\w+)"
    r"|TRIGGER (?P<trigger>\w+)\s[^;]*?\bON (?P<relation>\w+\.\w+))"
)
_COMMENT = re.compile(r"--[^\n]*")
_QUALIFIED = re.compile(r"\b\w+\.\w+\b")
_TIMEOUT_SECONDS = FUNCTION_TIMEOUT.total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One file of one migration package: a function, a view or a trigger.

    `scope` is the schema of a function or view, and the relation of a trigger. `version` counts
    the texts that the file has had.
    """

    package: str
    scope: str
    name: str
    is_overloadable: bool
    script: LiteralString
    version: int

    @property
    def checksum(self) -> str:
        """Return the hash of the text."""
        return checksum(self.script)

    @property
    def qualified_name(self) -> str:
        """Return the name by which other texts refer to this one."""
        return f"{self.scope}.{self.name}"

    @property
    def references(self) -> frozenset[str]:
        """Return the qualified names in the text."""
        return frozenset(_QUALIFIED.findall(_code(self.script)))


def checksum(script: str) -> str:
    """Return the hash of a text, as the database and the history keep it."""
    return sha256(script.encode()).hexdigest()


@cache  # 4 ms; a process may open many apps, and its package does not change meanwhile.
def read_functions(package: str) -> tuple[Function, ...]:
    """Return what a migration package ships, by name."""
    folder = files(package) / "functions"
    if not folder.is_dir():
        return ()
    history = read_history(package)
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple(_read(package, name, history) for name in names)


def read_history(package: str) -> dict[str, list[str]]:
    """Return the checksums of all texts that each file has had, oldest first.

    A package without `functions/history.json` keeps none; then the last release to start wins.
    """
    file = files(package) / "functions" / "history.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def _read(package: str, file: str, history: dict[str, list[str]]) -> Function:
    name = file.removesuffix(".sql")
    script = read_sql(package, "functions", file)
    head = _HEAD.match(_code(script))
    if head is None or name not in {head["name"], head["trigger"]}:
        reason = "must be CREATE OR REPLACE FUNCTION, VIEW or TRIGGER of the file's own name"
        raise BadMigration(package, file, reason)
    texts = history.get(name, [])
    is_recorded = texts[-1:] == [checksum(script)]
    return Function(
        package=package,
        scope=head["schema"] or head["relation"],
        name=name,
        is_overloadable=head["kind"] == "FUNCTION",
        script=script,
        version=len(texts) if is_recorded else len(texts) + 1,
    )


def _code(script: str) -> str:
    return _COMMENT.sub("", script).strip()


async def list_functions(connection: Connection, package: str) -> list[Row]:
    """Return which versions the database has."""
    return await connection.fetch(LIST_FUNCTIONS, package)


def outdated_functions(functions: Sequence[Function], applied: Sequence[Row]) -> list[Function]:
    """Return those whose text here is newer than that of the database."""
    by_name = {row["name"]: row for row in applied}
    return [each for each in functions if _is_newer(each, by_name.get(each.name))]


def newer_functions(functions: Sequence[Function], applied: Sequence[Row]) -> list[str]:
    """Return the names of those whose text in the database is of a newer release."""
    versions = {row["name"]: row["version"] for row in applied}
    return [each.name for each in functions if versions.get(each.name, 0) > each.version]


def _is_newer(shipped: Function, applied: Row | None) -> bool:
    """Never true for the text of an older release: that has a lower version.

    Two texts of one version exist only while one of them is being written.
    """
    if applied is None or shipped.version > applied["version"]:
        return True
    return shipped.version == applied["version"] and shipped.checksum != applied["checksum"]


async def apply_functions(
    connection: Connection, package: str, functions: Sequence[Function]
) -> list[str]:
    """Apply what is newer here, all or nothing, and return the names."""
    applied = await list_functions(connection, package)
    names = {each.name for each in outdated_functions(functions, applied)}
    if not names:
        return []
    ordered = _in_order(functions)
    async with connection.transaction():
        for each in ordered:
            if each.name in names:
                names |= await _replace(connection, each, ordered)
                await connection.execute(
                    RECORD_FUNCTION, package, each.name, each.version, each.checksum
                )
    return sorted(names)


def _in_order(functions: Sequence[Function]) -> list[Function]:
    """Put each after those that it refers to; what other packages define is there before."""
    by_name = {each.qualified_name: each for each in functions}
    order = TopologicalSorter(
        {name: sorted(each.references & by_name.keys() - {name}) for name, each in by_name.items()}
    )
    try:
        return [by_name[name] for name in order.static_order()]
    except CycleError as cycle:
        names = ", ".join(sorted(set(cycle.args[1])))
        raise BadMigration(functions[0].package, names, "these refer to each other") from cycle


async def _replace(
    connection: Connection, function: Function, functions: Iterable[Function]
) -> set[str]:
    """Apply one text; return the names of those that had to be dropped and are to be applied too.

    CREATE OR REPLACE refuses another return type or other columns, and adds a second function for
    other parameter types. Then the object is dropped with its users of the same package.
    """
    if await _is_replaced(connection, function):
        return set()
    users = _users(function, functions)
    try:
        for each in [*reversed(users), function]:
            for row in await connection.fetch(DROP_STATEMENTS, each.scope, each.name):
                await connection.execute(composed_by_server(row[0]), timeout=_TIMEOUT_SECONDS)
    except asyncpg.DependentObjectsStillExistError as refused:
        reason = (
            f"cannot be replaced while something else uses it: {getattr(refused, 'detail', '')}"
        )
        raise BadMigration(function.package, function.name, reason) from refused
    await connection.execute(function.script, timeout=_TIMEOUT_SECONDS)
    return {each.name for each in users}


async def _is_replaced(connection: Connection, function: Function) -> bool:
    try:
        async with connection.transaction():
            await connection.execute(function.script, timeout=_TIMEOUT_SECONDS)
    except (asyncpg.InvalidFunctionDefinitionError, asyncpg.InvalidTableDefinitionError):
        return False
    if not function.is_overloadable:
        return True
    overloads: int = await connection.fetchval(COUNT_OVERLOADS, function.scope, function.name)
    return overloads == 1


def _users(function: Function, functions: Iterable[Function]) -> list[Function]:
    """Return what refers to a function, directly or through others, in the order of application."""
    found = {function.qualified_name: function}
    for each in functions:
        if each.references & found.keys():
            found[each.qualified_name] = each
    return [each for each in found.values() if each is not function]
