"""`penstock key`: API keys. A token is printed once, when its key is created."""

from dataclasses import asdict
from pathlib import Path

import click

from penstock.console.database import ask, data_dir_option, operator
from penstock.console.output import json_option, print_json, print_rows
from penstock.kernel.api_keys import SCOPES, create_key, list_keys, revoke_key


@click.group()
def key() -> None:
    """Create, list and revoke API keys."""


@key.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=click.Choice(SCOPES),
    help="What it may do; may be given again.",
)
@data_dir_option
@json_option
def create(*, name: str, scopes: tuple[str, ...], data_dir: Path | None, as_json: bool) -> None:
    """Create an API key and print its token, which cannot be shown again."""
    made, token = ask(data_dir, lambda db: create_key(db, name, scopes, who=operator()))
    if as_json:
        print_json(asdict(made) | {"token": token})
    else:
        click.echo(token)
        click.echo(f"key {made.key_id} for {', '.join(made.scopes)}: shown this once", err=True)


@key.command("list")
@data_dir_option
@json_option
def list_(*, data_dir: Path | None, as_json: bool) -> None:
    """List all API keys, also revoked ones, without their tokens."""
    rows = [asdict(each) for each in ask(data_dir, list_keys)]
    print_rows(rows, as_json=as_json, none="there are no keys yet")


@key.command()
@click.argument("key_id", metavar="ID")
@data_dir_option
@json_option
def revoke(*, key_id: str, data_dir: Path | None, as_json: bool) -> None:
    """Revoke an API key immediately."""
    ask(data_dir, lambda db: revoke_key(db, key_id, who=operator()))
    if as_json:
        print_json({"key_id": key_id, "revoked": True})
    else:
        click.echo(f"key {key_id} is revoked")
