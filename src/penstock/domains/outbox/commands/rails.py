"""`penstock outbox rail` and `code`: where instructions go, and what the answers mean."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import msgspec

from penstock.console.database import ask, data_dir_option, find_dsn, operator
from penstock.console.output import json_option, print_rows
from penstock.console.values import read_json
from penstock.contract.resources import choose_vault
from penstock.domains.outbox.commands.control import echo_notice
from penstock.domains.outbox.rails import wire
from penstock.domains.outbox.rails.codes import CLASSES, Code, list_codes, put_code, remove_code
from penstock.domains.outbox.rails.destination import SCHEMES, DestinationScheme
from penstock.domains.outbox.rails.rail import CodeClass
from penstock.domains.outbox.rails.registry import (
    CONCURRENCY_MAX,
    RailRow,
    find_notice,
    list_rails,
    put_rail,
    remove_rail,
)
from penstock.postgres.pool import Connection


@click.group()
def rail() -> None:
    """Set up the rails that instructions leave through. A change takes effect within a second."""


@rail.command("put")
@click.argument("rail_type")
@click.option("--adapter", required=True, help="http_json, simulator, or one of another package.")
@click.option(
    "--config",
    help="JSON file that the adapter reads; - is stdin.",
)
@click.option("--code-set", required=True, help="Codes of its answers, such as iso20022.")
@click.option(
    "--destination-scheme",
    type=click.Choice(SCHEMES),
    default="any",
    show_default=True,
    help="How destinations are checked.",
)
@click.option(
    "--timeout-seconds", type=float, default=30, show_default=True, help="Of one call, 1 to 45."
)
@click.option(
    "--concurrency-max",
    type=int,
    default=CONCURRENCY_MAX,
    show_default=True,
    help="Calls at a time in each process.",
)
@click.option("--secret", "asks_secret", is_flag=True, help="Ask for what the rail gets.")
@click.option(
    "--result-secret", "asks_result_secret", is_flag=True, help="Ask for that of its results."
)
@data_dir_option
def put(  # noqa: PLR0913  One argument per option.
    *,
    rail_type: str,
    adapter: str,
    config: str | None,
    code_set: str,
    destination_scheme: DestinationScheme,
    timeout_seconds: float,
    concurrency_max: int,
    asks_secret: bool,
    asks_result_secret: bool,
    data_dir: Path | None,
) -> None:
    """Create or replace a rail, with all its options.

    A secret that is not asked for stays as it is; any other option that is absent has its default.
    """
    row = RailRow(
        rail_type=rail_type,
        adapter=adapter,
        config={} if config is None else read_json(config, dict[str, Any], field="config"),
        code_set=code_set,
        destination_scheme=destination_scheme,
        timeout=timedelta(seconds=timeout_seconds),
        concurrency_max=concurrency_max,
    )
    secret = _prompt("secret") if asks_secret else None
    result_secret = _prompt("result secret") if asks_result_secret else None
    vault = choose_vault(find_dsn(data_dir), data_dir)

    async def put_and_look(db: Connection) -> str | None:
        await put_rail(
            db, row, vault=vault, who=operator(), secret=secret, result_secret=result_secret
        )
        return await find_notice(db, row)

    notice = ask(data_dir, put_and_look)
    click.echo(f"rail {rail_type} is set", err=True)
    echo_notice(notice)


@rail.command("list")
@data_dir_option
@json_option
def list_(*, data_dir: Path | None, as_json: bool) -> None:
    """List the rails, without their secrets."""
    rows = [msgspec.to_builtins(wire.to_wire_rail(each)) for each in ask(data_dir, list_rails)]
    print_rows(rows, as_json=as_json, none="there are no rails")


@rail.command()
@click.argument("rail_type")
@data_dir_option
def remove(*, rail_type: str, data_dir: Path | None) -> None:
    """Remove a rail; its instructions wait."""
    notice = ask(data_dir, lambda db: remove_rail(db, rail_type, who=operator()))
    click.echo(f"rail {rail_type} is removed", err=True)
    echo_notice(notice)


@click.group()
def code() -> None:
    """Set what the codes of rails mean. A code that is not listed is unknown."""


@code.command("put")
@click.argument("code_set")
@click.argument("code")
@click.argument("code_class", metavar="CLASS", type=click.Choice(CLASSES))
@click.option("--meaning", default="", help="For people.")
@click.option("--source", default="", help="Where the meaning is from.")
@data_dir_option
def put_(
    *,
    code_set: str,
    code: str,
    code_class: CodeClass,
    meaning: str,
    source: str,
    data_dir: Path | None,
) -> None:
    """Set the class of a code: paid, terminal, retryable, unknown or pending."""
    made = Code(code_set=code_set, code=code, code_class=code_class, meaning=meaning, source=source)
    ask(data_dir, lambda db: put_code(db, made, who=operator()))
    click.echo(f"code {code} of {code_set} is {code_class}", err=True)


@code.command("list")
@click.argument("code_set", required=False)
@data_dir_option
@json_option
def list_of_codes(*, code_set: str | None, data_dir: Path | None, as_json: bool) -> None:
    """List the codes of one set, or of all."""
    found = ask(data_dir, lambda db: list_codes(db, code_set))
    rows = [msgspec.to_builtins(wire.to_wire_code(each)) for each in found]
    print_rows(rows, as_json=as_json, none="there are no codes")


@code.command("remove")
@click.argument("code_set")
@click.argument("code")
@data_dir_option
def remove_(*, code_set: str, code: str, data_dir: Path | None) -> None:
    """Remove a code, which is unknown from then on."""
    ask(data_dir, lambda db: remove_code(db, code_set, code, who=operator()))
    click.echo(f"code {code} of {code_set} is removed", err=True)


def _prompt(name: str) -> str:
    return click.prompt(name, hide_input=True, err=True)
