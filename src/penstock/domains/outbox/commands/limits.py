"""`penstock outbox limit`, `calendar` and `policy`: how much, when, and what a failure does."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from penstock.calendar.calendar import Calendar
from penstock.console.database import ask, data_dir_option, operator
from penstock.console.output import json_option, print_rows
from penstock.console.values import parse_amount, read_json
from penstock.domains.outbox.commands.control import echo_notice, read_scope, scope_options
from penstock.domains.outbox.control import cut_off, limits
from penstock.domains.outbox.control.control_scope import find_notice
from penstock.domains.outbox.control.limits import AmountLimits
from penstock.domains.outbox.control.suspension import (
    FailurePolicy,
    Policy,
    list_failure_policies,
    put_failure_policy,
)
from penstock.postgres.pool import Connection


@click.group()
def limit() -> None:
    """Set how much may leave at once and on a day, and from where on a second person decides."""


@limit.command("set")
@click.argument("currency")
@scope_options
@click.option("--amount-max", help="An instruction over it fails.")
@click.option("--approval-above", help="An instruction over it waits for an approval.")
@click.option(
    "--day-amount-max", help="A participant's sum per UTC day; over it, an approval is needed."
)
@data_dir_option
def set_limit(
    *,
    currency: str,
    is_all: bool,
    rail: str | None,
    participant: str | None,
    amount_max: str | None,
    approval_above: str | None,
    day_amount_max: str | None,
    data_dir: Path | None,
) -> None:
    """Set or replace limits in one currency."""
    scope, name = read_scope(is_all=is_all, rail=rail, participant=participant)
    made = AmountLimits(
        scope=scope,
        name=name,
        currency=currency,
        amount_max=parse_amount(amount_max, field="--amount-max"),
        approval_above=parse_amount(approval_above, field="--approval-above"),
        day_amount_max=parse_amount(day_amount_max, field="--day-amount-max"),
    )

    async def put_and_look(db: Connection) -> str | None:
        await limits.put_limits(db, made, who=operator())
        return await find_notice(db, scope, name)

    notice = ask(data_dir, put_and_look)
    click.echo("the limits are set", err=True)
    echo_notice(notice)


@limit.command("list")
@data_dir_option
@json_option
def list_limits(*, data_dir: Path | None, as_json: bool) -> None:
    """List the limits."""
    rows = [asdict(each) for each in ask(data_dir, limits.list_limits)]
    print_rows(rows, as_json=as_json, none="there are no limits")


@limit.command("remove")
@click.argument("currency")
@scope_options
@data_dir_option
def remove_limit(
    *,
    currency: str,
    is_all: bool,
    rail: str | None,
    participant: str | None,
    data_dir: Path | None,
) -> None:
    """Remove the limits of all, a rail or a participant in one currency."""
    scope, name = read_scope(is_all=is_all, rail=rail, participant=participant)
    ask(
        data_dir,
        lambda db: limits.remove_limits(db, currency, scope=scope, name=name, who=operator()),
    )
    click.echo("the limits are removed", err=True)


@click.group()
def calendar() -> None:
    """Set when rails are open."""


@calendar.command("set")
@click.argument("rail_type", metavar="RAIL")
@click.argument("file")
@data_dir_option
def set_calendar(*, rail_type: str, file: str, data_dir: Path | None) -> None:
    """Set the calendar of a rail from a JSON file; - is standard input."""
    given = read_json(file, Calendar, field="calendar")
    ask(
        data_dir,
        lambda db: cut_off.put_calendar(
            db, rail_type, given, who=operator(), now=datetime.now(UTC)
        ),
    )
    click.echo(f"the calendar of {rail_type} is set", err=True)


@calendar.command("list")
@data_dir_option
@json_option
def list_calendars(*, data_dir: Path | None, as_json: bool) -> None:
    """List the calendars of rails."""
    rows = [
        {"rail_type": each.rail_type, "calendar": msgspec.to_builtins(each.calendar)}
        for each in ask(data_dir, cut_off.list_calendars)
    ]
    print_rows(rows, as_json=as_json, none="all rails are always open")


@calendar.command("remove")
@click.argument("rail_type", metavar="RAIL")
@data_dir_option
def remove_calendar(*, rail_type: str, data_dir: Path | None) -> None:
    """Remove the calendar of a rail: it is always open."""
    ask(data_dir, lambda db: cut_off.remove_calendar(db, rail_type, who=operator()))
    click.echo(f"{rail_type} is always open", err=True)


@click.group()
def policy() -> None:
    """Set what a failed instruction does to its participant."""


@policy.command("set")
@click.argument("policy", type=click.Choice(["block", "suspend"]))
@scope_options
@data_dir_option
def set_policy(
    *,
    policy: Policy,
    is_all: bool,
    rail: str | None,
    participant: str | None,
    data_dir: Path | None,
) -> None:
    """Block the participant until the instruction is released or skipped, or suspend it."""
    scope, name = read_scope(is_all=is_all, rail=rail, participant=participant)
    made = FailurePolicy(scope=scope, name=name, policy=policy)

    async def put_and_look(db: Connection) -> str | None:
        await put_failure_policy(db, made, who=operator())
        return await find_notice(db, scope, name)

    notice = ask(data_dir, put_and_look)
    click.echo(f"a failed instruction will {policy} its participant", err=True)
    echo_notice(notice)


@policy.command("list")
@data_dir_option
@json_option
def list_policies(*, data_dir: Path | None, as_json: bool) -> None:
    """List what was set; elsewhere a failed instruction blocks."""
    rows = [asdict(each) for each in ask(data_dir, list_failure_policies)]
    print_rows(rows, as_json=as_json, none="failed instructions block")


COMMANDS = (limit, calendar, policy)
