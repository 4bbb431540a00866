"""`penstock payment limit` and `rule`: how much, whether twice, and when."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from penstock.base.errors import InvalidInput
from penstock.calendar.calendar import Calendar
from penstock.console.database import ask, data_dir_option, operator
from penstock.console.output import json_option, print_rows
from penstock.console.values import parse_amount, read_json
from penstock.domains.payments.control import limits, type_rules, wire
from penstock.domains.payments.control.limits import PaymentLimit

participant_option = click.option("--participant", help="Participant that pays; all if absent.")


@click.group()
def limit() -> None:
    """Set how much a payment may be, and the payments of a participant on a day."""


@limit.command("set")
@click.argument("currency")
@participant_option
@click.option("--amount-max", help="A payment over it is refused.")
@click.option(
    "--day-amount-max",
    help="A participant's sum per UTC day; a payment over it is refused.",
)
@data_dir_option
def set_limit(
    *,
    currency: str,
    participant: str | None,
    amount_max: str | None,
    day_amount_max: str | None,
    data_dir: Path | None,
) -> None:
    """Set or replace the limits of a participant, or of all, in one currency."""
    made = PaymentLimit(
        currency=currency,
        participant_id=participant,
        amount_max=parse_amount(amount_max, field="--amount-max"),
        day_amount_max=parse_amount(day_amount_max, field="--day-amount-max"),
    )
    ask(data_dir, lambda db: limits.put_limit(db, made, who=operator()))
    click.echo("the limits are set", err=True)


@limit.command("list")
@data_dir_option
@json_option
def list_limits(*, data_dir: Path | None, as_json: bool) -> None:
    """List the limits."""
    rows = [asdict(each) for each in ask(data_dir, limits.list_limits)]
    print_rows(rows, as_json=as_json, none="there are no limits")


@limit.command("remove")
@click.argument("currency")
@participant_option
@data_dir_option
def remove_limit(*, currency: str, participant: str | None, data_dir: Path | None) -> None:
    """Remove the limits of a participant, or of all, in one currency."""
    ask(data_dir, lambda db: limits.remove_limit(db, currency, participant, who=operator()))
    click.echo("the limits are removed", err=True)


@click.group()
def rule() -> None:
    """Set whether an item type refuses duplicates, and when its payments are executed."""


@rule.command("set")
@click.argument("item_type", metavar="TYPE")
@click.option(
    "--refuse-duplicates/--allow-duplicates",
    "refuses_duplicates",
    default=None,
    help="Whether the same content on the same day of UTC is refused.",
)
@click.option("--calendar", help="JSON file with opening hours; - is stdin.")
@click.option("--no-calendar", is_flag=True, help="Execute payments at any time.")
@data_dir_option
def set_rule(
    *,
    item_type: str,
    refuses_duplicates: bool | None,
    calendar: str | None,
    no_calendar: bool,
    data_dir: Path | None,
) -> None:
    """Change the rule of an item type; what is not given stays."""
    if no_calendar and calendar is not None:
        raise InvalidInput("--no-calendar", "cannot be combined with --calendar")
    fields: dict[str, Any] = {}
    if refuses_duplicates is not None:
        fields["refuses_duplicates"] = refuses_duplicates
    if no_calendar or calendar is not None:
        fields["calendar"] = (
            None if calendar is None else read_json(calendar, Calendar, field="calendar")
        )
    if not fields:
        raise InvalidInput("--refuse-duplicates", "is required unless another option is given")
    ask(
        data_dir,
        lambda db: type_rules.change_rule(
            db, item_type, who=operator(), now=datetime.now(UTC), **fields
        ),
    )
    click.echo(f"the rule of {item_type} is set", err=True)


@rule.command("list")
@data_dir_option
@json_option
def list_rules(*, data_dir: Path | None, as_json: bool) -> None:
    """List the rules of item types."""
    found = ask(data_dir, type_rules.list_rules)
    rows = [msgspec.to_builtins(wire.to_wire_rule(each)) for each in found]
    print_rows(rows, as_json=as_json, none="no item type has a rule")


@rule.command("remove")
@click.argument("item_type", metavar="TYPE")
@data_dir_option
def remove_rule(*, item_type: str, data_dir: Path | None) -> None:
    """Remove the rule of an item type: duplicates are allowed, at any time."""
    ask(data_dir, lambda db: type_rules.remove_rule(db, item_type, who=operator()))
    click.echo(f"{item_type} has no rule", err=True)
