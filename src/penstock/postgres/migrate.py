"""Bring the schema forward: the steps and functions of each package, compared with the database.

Many processes may start at once: one migrates under an advisory lock, the others wait for it.
Processes of the previous release keep running, and may restart, until a post step.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import asyncpg

from penstock.base.errors import BadSetting
from penstock.postgres.errors import BadMigration, MigrationDenied
from penstock.postgres.functions import (
    Function,
    apply_functions,
    list_functions,
    newer_functions,
    outdated_functions,
    read_functions,
)
from penstock.postgres.pool import Connection, Row
from penstock.postgres.statement import statement
from penstock.postgres.steps import Step, is_post, read_steps

T = TypeVar("T")

MIGRATION_TIMEOUT = timedelta(minutes=30)  # An index on a table of 100M rows is built in this time.
LOCK_WAIT = timedelta(seconds=1)  # Workers that need the table queue behind the step.
LOCK_RETRY_DELAY = timedelta(seconds=1)  # Then they run, before the step tries again.
LOCK_ID = 0x70656E73746F636B  # "penstock" in ASCII; every process asks for the same lock.

CREATE_MIGRATION_TABLES = statement(__package__, "create_migration_tables.sql")
HAS_MIGRATION_TABLES = statement(__package__, "has_migration_tables.sql")
LIST_APPLIED = statement(__package__, "list_applied.sql")
RECORD_MIGRATION = statement(__package__, "record_migration.sql")
FORGET_MIGRATIONS = statement(__package__, "forget_migrations.sql")
READ_ROLES = statement(__package__, "read_roles.sql")
LIMIT_LOCK_WAIT = statement(__package__, "limit_lock_wait.sql")
LOCK_MIGRATIONS = statement(__package__, "lock_migrations.sql")
UNLOCK_MIGRATIONS = statement(__package__, "unlock_migrations.sql")

_TIMEOUT_SECONDS = MIGRATION_TIMEOUT.total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaDifference:
    """How the database differs from this release: names of steps and functions."""

    missing: list[str]
    newer: list[str]  # Of a newer release. It has removed nothing, so this one can run.


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one migration package ships, and what of it the database lacks."""

    package: str
    functions: Sequence[Function]
    outdated: list[Function]
    adopted: Step | None  # Recorded under the names of the steps that it replaces.
    pre: list[Step]
    due_post: list[Step]  # Of earlier releases: a later pre step is shipped too.
    last_post: list[Step]  # Of this release: the previous one may still run.
    newer: list[str]  # Steps and functions that only a newer release ships.

    def missing(self, *, post: bool) -> list[str]:
        """Return the names of what is to be applied."""
        steps = self.pre + self.due_post + (self.last_post if post else [])
        names = [f"{self.package}/{step.name}" for step in steps]
        return names + _summary(self.package, [each.name for each in self.outdated])


async def migrate(
    connection: Connection, migration_packages: Sequence[str], *, post: bool = False
) -> list[str]:
    """Apply what is missing, package by package in the given order, and return the names applied.

    The post steps of this release are applied with `post` only, or by the next release. Each step
    runs in a transaction of its own, so a failure leaves the earlier ones in place and a repeat
    goes on from there. Raises BadMigration when an applied step was edited, or when a newer release
    has removed what this one needs, and MigrationDenied when the role may not change the schema. If
    nothing is missing, the role needs no right to. Each of the `migration_packages`, such as
    "penstock.kernel", ships steps and functions.
    """
    plans = await _plan_all(connection, migration_packages)
    names = [name for plan in plans for name in plan.missing(post=post)]
    if not names and not any(plan.adopted for plan in plans):
        return []
    try:
        return await _migrate(connection, migration_packages, post=post)
    except asyncpg.InsufficientPrivilegeError as refused:
        roles = await connection.fetchrow(READ_ROLES)
        assert roles is not None, "a SELECT without FROM has one row"
        raise MigrationDenied(
            tuple(names), role=roles["role"], schema_owner=roles["schema_owner"]
        ) from refused


async def _migrate(
    connection: Connection, migration_packages: Sequence[str], *, post: bool
) -> list[str]:
    await connection.execute(LOCK_MIGRATIONS, LOCK_ID, timeout=_TIMEOUT_SECONDS)
    try:
        # The schema's owner may lack CREATE on the database, which this needs even if it exists.
        if not await connection.fetchval(HAS_MIGRATION_TABLES):
            await connection.execute(CREATE_MIGRATION_TABLES)
        # Planned again: another process may have migrated before this one got the lock.
        plans = await _plan_all(connection, migration_packages)
        applied: list[str] = []
        for plan in plans:
            if plan.adopted:
                await _adopt(connection, plan.adopted)
            applied += [await _apply(connection, step) for step in plan.pre]
            applied += _summary(plan.package, await _apply_functions(connection, plan))
        # After all functions, as the texts of an earlier release may use what these steps remove.
        for plan in plans:
            steps = plan.due_post + (plan.last_post if post else [])
            applied += [await _apply(connection, step) for step in steps]
    finally:
        if not connection.is_closed():
            await connection.execute(UNLOCK_MIGRATIONS, LOCK_ID)
    return applied


async def compare(
    connection: Connection, migration_packages: Sequence[str], *, post: bool = False
) -> SchemaDifference:
    """Return what `migrate` would apply and what it would not know; raises as it would.

    Only reads.
    """
    plans = await _plan_all(connection, migration_packages)
    return SchemaDifference(
        missing=[name for plan in plans for name in plan.missing(post=post)],
        newer=[name for plan in plans for name in plan.newer],
    )


async def check(connection: Connection, migration_packages: Sequence[str]) -> None:
    """Raise BadMigration unless this release can run on the database as it is; only reads."""
    names = (await compare(connection, migration_packages)).missing
    if names:
        package, _, name = names[0].partition("/")
        rest = f", which also applies {', '.join(names[1:])}" if names[1:] else ""
        raise BadMigration(package, name, f"is not applied; run: penstock migrate{rest}")


async def _plan_all(connection: Connection, migration_packages: Sequence[str]) -> list[Plan]:
    try:
        return [await _plan(connection, package) for package in migration_packages]
    except asyncpg.InsufficientPrivilegeError as refused:
        # Without a right to read the migration tables, the role can run nothing either.
        reason = f"{refused}; the role needs the grants that every process needs"
        raise BadSetting("PENSTOCK_DATABASE_URL", reason) from refused


async def _plan(connection: Connection, package: str) -> Plan:
    try:
        steps = await connection.fetch(LIST_APPLIED, package)
        functions = await list_functions(connection, package)
    except (asyncpg.InvalidSchemaNameError, asyncpg.UndefinedTableError):
        steps, functions = [], []
    return _compare(package, steps, functions)


def _compare(package: str, applied: Sequence[Row], applied_functions: Sequence[Row]) -> Plan:
    steps = read_steps(package)
    functions = read_functions(package)
    adopted = _find_adopted(steps, applied)
    done = {adopted.number} if adopted else {row["number"] for row in applied}
    if not adopted:
        _refuse_unknown(package, steps, applied)
    left = [step for step in steps if step.number not in done]
    last_pre = max((step.number for step in steps if not step.is_post), default=0)
    unknown = [row["name"] for row in applied if row["number"] > len(steps) and not adopted]
    return Plan(
        package=package,
        functions=functions,
        outdated=outdated_functions(functions, applied_functions),
        adopted=adopted,
        pre=[step for step in left if not step.is_post],
        due_post=[step for step in left if step.is_post and step.number < last_pre],
        last_post=[step for step in left if step.is_post and step.number > last_pre],
        newer=[
            *(f"{package}/{name}" for name in unknown),
            *_summary(package, newer_functions(functions, applied_functions)),
        ],
    )


def _find_adopted(steps: Sequence[Step], applied: Sequence[Row]) -> Step | None:
    """Return the step that replaces all that is applied, if there is one."""
    names = [row["name"] for row in applied]
    return next((step for step in steps if names and step.replaces == names), None)


def _refuse_unknown(package: str, steps: Sequence[Step], applied: Sequence[Row]) -> None:
    shipped = {step.number: step for step in steps}
    for row in applied:
        step = shipped.get(row["number"])
        if step is None and is_post(row["name"]):
            reason = (
                "a newer release has applied it, and this one cannot work without what it removed"
            )
            raise BadMigration(package, row["name"], f"{reason}; upgrade the code")
        if step is not None and row["checksum"] != step.checksum:
            reason = "the file was changed after it had been applied; add a new one instead"
            raise BadMigration(package, step.name, reason)


def _summary(package: str, functions: Sequence[str]) -> list[str]:
    """Return one name for all functions of a package, which are applied together."""
    match functions:
        case []:
            return []
        case [name]:
            return [f"{package}/functions/{name}"]
        case _:
            return [f"{package}/functions ({len(functions)})"]


async def _adopt(connection: Connection, step: Step) -> None:
    async with connection.transaction():
        await connection.execute(FORGET_MIGRATIONS, step.package)
        await _record(connection, step)


async def _apply(connection: Connection, step: Step) -> str:
    async def run() -> str:
        await connection.execute(step.script, timeout=_TIMEOUT_SECONDS)
        await _record(connection, step)
        return f"{step.package}/{step.name}"

    return await _in_transaction(connection, run)


async def _apply_functions(connection: Connection, plan: Plan) -> list[str]:
    return await _in_transaction(
        connection, lambda: apply_functions(connection, plan.package, plan.functions)
    )


async def _in_transaction(connection: Connection, work: Callable[[], Awaitable[T]]) -> T:
    """Do `work`, all or nothing; give up a lock that is not granted soon, and repeat it.

    Readers and writers of the table queue behind a lock that waits, so that one long transaction
    would stop all workers.
    """
    async with asyncio.timeout(_TIMEOUT_SECONDS):
        while True:
            try:
                async with connection.transaction():
                    await connection.execute(LIMIT_LOCK_WAIT, LOCK_WAIT)
                    return await work()
            except asyncpg.LockNotAvailableError:
                await asyncio.sleep(LOCK_RETRY_DELAY.total_seconds())


async def _record(connection: Connection, step: Step) -> None:
    await connection.execute(RECORD_MIGRATION, step.package, step.number, step.name, step.checksum)
