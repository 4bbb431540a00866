"""`penstock doctor`: check the installation and print one line per check."""

import asyncio
import platform
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import click

from penstock.base.errors import BadSetting, PenstockError
from penstock.base.settings import settings
from penstock.cli.migrate import NEWER, compare_schema
from penstock.compose.domains import chosen_domains, read_settings_of
from penstock.console.database import connected, data_dir_option, find_dsn, lent_resources
from penstock.console.exits import Exit, message
from penstock.console.output import duration, json_option, print_lines, print_rows
from penstock.contract import Check, Domain, Finding, Resources
from penstock.kernel.inspect import BlockedKey, LaneDepth, list_blocked, measure_lanes
from penstock.kernel.lane import list_lanes
from penstock.postgres.clock import OFFSET_MAX
from penstock.postgres.errors import BadMigration
from penstock.postgres.pool import Connection, address, database_away
from penstock.postgres.statement import statement

READ_SERVER = statement(__package__, "read_server.sql")

VERSION_MIN = 140_000  # What the kernel's SQL was written for; the embedded server is 18.
OVERDUE_MAX = timedelta(minutes=5)


@click.command()
@data_dir_option
@json_option
def doctor(*, data_dir: Path | None, as_json: bool) -> None:
    """Check settings, database, durability, schema, clocks, leases, lanes and secrets.

    Prints one line per check, `ok`, `warn` or `fail`, and exits with 1 if one fails.
    """
    findings = asyncio.run(_run_checks(data_dir))
    if as_json:
        print_rows([asdict(each) for each in findings], as_json=True, none="")
    else:
        print_lines([[each.verdict, each.check, each.detail] for each in findings])
    if any(each.verdict == "fail" for each in findings):
        sys.exit(Exit.FAILED)


async def _run_checks(data_dir: Path | None) -> list[Finding]:
    findings: list[Finding] = []
    try:
        async for each in _checks(data_dir):
            findings.append(each)  # noqa: PERF401  What was found before a failure is kept.
    except PenstockError as failed:
        findings.append(Finding("fail", "database", str(failed)))
    return findings


async def _checks(data_dir: Path | None) -> AsyncGenerator[Finding]:
    yield Finding("ok", "python", platform.python_version())
    yield _settings()
    async with connected(data_dir) as db:
        async for each in _server(db, find_dsn(data_dir)):
            yield each
        schema = await _schema(db)
        yield schema
        if schema.verdict == "fail":
            return
        async for each in _lanes(db):
            yield each
    async with lent_resources(data_dir) as resources:
        for domain in chosen_domains():
            for check in domain.checks:
                yield await _run(check, domain, resources)


async def _run(check: Check, domain: Domain, resources: Resources) -> Finding:
    try:
        with database_away():
            return await check(resources)
    except (PenstockError, asyncpg.PostgresError) as failed:
        # Only a finding says what its check is called; the function's name is what there is.
        name = getattr(check, "__name__", type(check).__name__).removeprefix("check_")
        return Finding("fail", f"{domain.name} {name.replace('_', ' ')}", message(failed))


def _settings() -> Finding:
    try:
        read_settings_of(chosen_domains())
    except BadSetting as wrong:
        return Finding("fail", "settings", str(wrong))
    return Finding("ok", "settings", f"log level {settings().log_level}")


async def _schema(db: Connection) -> Finding:
    try:
        found = await compare_schema(db)
    except BadMigration as refused:
        return Finding("fail", "schema", str(refused))
    if found.missing:
        detail = f"lacks {', '.join(found.missing)}; run: penstock migrate"
        return Finding("fail", "schema", detail)
    if found.newer:
        return Finding("warn", "schema", f"{NEWER}: {', '.join(found.newer)}")
    return Finding("ok", "schema", "up to date")


async def _server(db: Connection, dsn: str) -> AsyncGenerator[Finding]:
    asked_at = datetime.now(UTC)
    row = await db.fetchrow(READ_SERVER)
    assert row is not None, "a SELECT without FROM has one row"
    round_trip = datetime.now(UTC) - asked_at
    is_new_enough = row["version_number"] >= VERSION_MIN
    detail = f"PostgreSQL {row['version']} at {address(dsn)}"
    yield Finding("ok" if is_new_enough else "fail", "database", detail)
    yield _durability(row["unsafe"])
    yield _clock(asked_at + round_trip / 2 - row["now"])


def _durability(unsafe: list[str]) -> Finding:
    """Warn of settings with which a crash loses or damages what was committed."""
    if not unsafe:
        return Finding("ok", "durability", "commits survive a crash of the server")
    listed = ", ".join(f"{each} = off" for each in unsafe)
    detail = f"{listed}: unsafe for payments, a crash loses what was committed"
    if "synchronous_commit" in unsafe:
        detail += "; sessions of Penstock set synchronous_commit to on, those of producers do not"
    return Finding("warn", "durability", detail)


def _clock(offset: timedelta) -> Finding:
    side = "ahead of" if offset >= timedelta(0) else "behind"
    detail = f"{abs(offset) / timedelta(milliseconds=1):.0f} ms {side} the database's"
    return Finding("ok" if abs(offset) <= OFFSET_MAX else "warn", "clock", detail)


async def _lanes(db: Connection) -> AsyncGenerator[Finding]:
    depths = await measure_lanes(db)
    expired = {each.lane: each.expired_leases for each in depths}
    yield _counts("expired leases", expired, "no sweeper seems to be running; start a worker")
    yield _overdue(depths)
    yield _blocked(await list_blocked(db))
    paused = [each.name for each in await list_lanes(db) if not each.enabled]
    yield Finding("warn" if paused else "ok", "paused lanes", ", ".join(paused) or "none")
    dead = {each.lane: each.dead for each in depths}
    yield _counts("dead letters", dead, "see: penstock dead list")
    held = {each.lane: each.held for each in depths}
    yield _counts("held items", held, "each needs a decision by a person")


def _counts(check: str, counts: dict[str, int], advice: str) -> Finding:
    found = {lane: count for lane, count in counts.items() if count}
    if not found:
        return Finding("ok", check, "none")
    listed = ", ".join(f"{count} in {lane}" for lane, count in found.items())
    return Finding("warn", check, f"{listed}; {advice}")


def _overdue(depths: list[LaneDepth]) -> Finding:
    late = {
        each.lane: timedelta(seconds=round(each.oldest_due_seconds))
        for each in depths
        if each.oldest_due_seconds > OVERDUE_MAX.total_seconds()
    }
    if not late:
        return Finding("ok", "overdue items", f"none above {duration(OVERDUE_MAX)}")
    listed = ", ".join(f"{lane} by {duration(by)}" for lane, by in late.items())
    return Finding("warn", "overdue items", f"{listed}; is a worker with a handler running?")


def _blocked(found: list[BlockedKey]) -> Finding:
    if not found:
        return Finding("ok", "blocked keys", "none")
    counts = Counter(each.lane for each in found)
    listed = ", ".join(f"{count} in {lane}" for lane, count in counts.items())
    first = found[0]
    example = f"item {first.follower_id} waits for {first.head_state} item {first.head_id}"
    advice = f"see: penstock item why {first.follower_id}"
    return Finding("warn", "blocked keys", f"{listed}; {example}; {advice}")
