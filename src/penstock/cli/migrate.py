"""`penstock migrate`: update the schema, or only report what is missing."""

import sys
from functools import partial
from pathlib import Path

import click

from penstock.compose.domains import chosen_domains, migration_packages
from penstock.console.database import ask, data_dir_option
from penstock.console.exits import Exit
from penstock.console.output import json_option, print_json
from penstock.postgres.migrate import SchemaDifference, compare
from penstock.postgres.migrate import migrate as apply
from penstock.postgres.pool import Connection
from penstock.postgres.search_path import extend_search_path

UP_TO_DATE = "the schema is up to date"
NEWER = "the schema is newer than this release, which runs on it until `penstock migrate --post`"


@click.command()
@click.option("--check", is_flag=True, help="Apply nothing; exit 1 if something is missing.")
@click.option(
    "--post",
    is_flag=True,
    help="Also apply the post steps; the previous release cannot start then.",
)
@click.option(
    "--search-path", is_flag=True, help="Also append `penstock` to the search_path of the database."
)
@data_dir_option
@json_option
def migrate(
    *, check: bool, post: bool, search_path: bool, data_dir: Path | None, as_json: bool
) -> None:
    """Update the schema of the database; `up`, `serve` and `worker` do so by themselves.

    First the pre steps are applied, which the previous release works with, then the functions. Once
    no process of the previous release runs any more, --post applies the post steps; without it, the
    next release does. With --search-path, views are found by name: it applies to new connections,
    and needs the owner of the database.
    """
    if check and search_path:
        raise click.UsageError("--check changes nothing and excludes --search-path")
    packages = migration_packages(chosen_domains())
    if check:
        _report(
            ask(data_dir, partial(compare, migration_packages=packages, post=post)), as_json=as_json
        )
        return
    names = ask(data_dir, partial(apply, migration_packages=packages, post=post))
    if search_path and ask(data_dir, extend_search_path):
        names.append("search_path")
    if as_json:
        print_json({"applied": names})
    else:
        click.echo("\n".join(f"applied {name}" for name in names) or UP_TO_DATE)


def _report(found: SchemaDifference, *, as_json: bool) -> None:
    if as_json:
        print_json({"missing": found.missing, "newer": found.newer})
    else:
        for name in found.missing:
            click.echo(f"missing {name}")
        for name in found.newer:
            click.echo(f"newer {name}")
        if found.newer:
            click.echo(NEWER)
        elif not found.missing:
            click.echo(UP_TO_DATE)
    if found.missing:
        sys.exit(Exit.FAILED)


async def compare_schema(db: Connection) -> SchemaDifference:
    """Return how the database differs from this release; raises BadMigration if it cannot run."""
    return await compare(db, migration_packages(chosen_domains()))
