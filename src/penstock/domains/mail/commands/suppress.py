"""`penstock mail suppress`: addresses that get no mail."""

from dataclasses import asdict
from pathlib import Path

import click

from penstock.console.database import ask, data_dir_option, operator
from penstock.console.output import json_option, print_rows
from penstock.console.values import LIMIT, parse_when


@click.group()
def suppress() -> None:
    """Keep addresses from getting mail."""


@suppress.command()
@click.argument("address")
@click.option("--expires", help="When it ends: an instant, or a time from now such as +30d.")
@data_dir_option
def add(*, address: str, expires: str | None, data_dir: Path | None) -> None:
    """Suppress an address."""
    from penstock.domains.mail.suppression import suppress as add_one  # noqa: PLC0415  An extra.

    expires_at = parse_when(expires, field="--expires")
    ask(
        data_dir,
        lambda db: add_one(db, address, reason="manual", expires_at=expires_at, who=operator()),
    )
    click.echo(f"{address} gets no mail", err=True)


@suppress.command()
@click.argument("address")
@data_dir_option
def remove(*, address: str, data_dir: Path | None) -> None:
    """Let an address get mail again."""
    from penstock.domains.mail.suppression import unsuppress  # noqa: PLC0415  An extra.

    ask(data_dir, lambda db: unsuppress(db, address, who=operator()))
    click.echo(f"{address} gets mail again", err=True)


@suppress.command("list")
@click.option("--after", help="Continue after this address.")
@click.option("--limit", type=LIMIT, default=100, show_default=True, help="How many.")
@data_dir_option
@json_option
def list_(*, after: str | None, limit: int, data_dir: Path | None, as_json: bool) -> None:
    """List suppressed addresses."""
    from penstock.domains.mail.suppression import list_suppressions  # noqa: PLC0415  An extra.

    found = ask(data_dir, lambda db: list_suppressions(db, after=after, limit=limit))
    print_rows([asdict(each) for each in found], as_json=as_json, none="no address is suppressed")
