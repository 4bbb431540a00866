"""`penstock migrate`: bring the schema forward, or only say what is missing."""

import sys
from pathlib import Path

import asyncpg
import click

from penstock.app import OWNERS
from penstock.cli.exits import Exit
from penstock.cli.output import json_option, print_json
from penstock.cli.place import ask, data_dir_option
from penstock.postgres.migrate import LIST_APPLIED, read_migrations
from penstock.postgres.migrate import migrate as apply
from penstock.postgres.pool import Connection


@click.command()
@click.option("--check", is_flag=True, help="Apply nothing; exit 1 if something is missing.")
@data_dir_option
@json_option
def migrate(*, check: bool, data_dir: Path | None, as_json: bool) -> None:
    """Bring the database's schema forward; `up`, `serve` and `worker` do so by themselves."""
    names = ask(data_dir, pending if check else _apply)
    if as_json:
        print_json({"missing" if check else "applied": names})
    elif names:
        for name in names:
            click.echo(f"{'missing' if check else 'applied'} {name}")
    else:
        click.echo("the schema is up to date")
    if check and names:
        sys.exit(Exit.FAILED)


async def pending(db: Connection) -> list[str]:
    """Return the migrations of this release that the database lacks."""
    missing: list[str] = []
    for owner in OWNERS:
        try:
            applied = {row["number"] for row in await db.fetch(LIST_APPLIED, owner)}
        except (asyncpg.InvalidSchemaNameError, asyncpg.UndefinedTableError):
            applied = set[int]()
        missing += [
            f"{owner}/{migration.name}"
            for migration in read_migrations(owner)
            if migration.number not in applied
        ]
    return missing


async def _apply(db: Connection) -> list[str]:
    return await apply(db, OWNERS)
