"""`penstock invoices`: the commands of this domain."""

from pathlib import Path

import click

from penstock.console.database import ask, data_dir_option
from penstock.console.output import json_option, print_rows
from penstock.postgres.statement import statement

LIST_LATEST = statement(__package__, "list_latest.sql")


@click.group()
def invoices() -> None:
    """Show invoices."""


@invoices.command("list")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@data_dir_option
@json_option
def list_(*, limit: int, data_dir: Path | None, as_json: bool) -> None:
    """List the latest invoices."""
    rows = ask(data_dir, lambda db: db.fetch(LIST_LATEST, limit))
    print_rows([dict(row.items()) for row in rows], as_json=as_json, none="no invoices")
