"""`penstock mail relay`, `limit` and `group`: where mails go, and how fast."""

from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import click

from penstock.console.database import ask, data_dir_option, find_dsn, operator
from penstock.console.output import json_option, print_rows, without
from penstock.contract.resources import choose_vault
from penstock.domains.mail.domain_group import (
    DomainGroup,
    list_domain_groups,
    put_domain_group,
)
from penstock.domains.mail.relay import (
    LimitScope,
    MailLimit,
    SmtpRelay,
    TlsPolicy,
    list_limits,
    list_relays,
    put_limit,
    put_relay,
    remove_relay,
)

PORT = click.IntRange(1, 65_535)


@click.group()
def relay() -> None:
    """Set the servers that take mails; they are tried in the order of their priority."""


@relay.command("set")
@click.argument("name")
@click.argument("host")
@click.option("--port", type=PORT, default=587, show_default=True, help="Port.")
@click.option(
    "--tls",
    type=click.Choice(["none", "opportunistic", "starttls", "tls"]),
    default="starttls",
    show_default=True,
    help="How the connection is protected.",
)
@click.option("--username", help="Account; its password is asked for.")
@click.option("--priority", type=int, default=100, show_default=True, help="Lower is first.")
@click.option("--connections-max", type=int, default=10, show_default=True, help="Connections.")
@click.option(
    "--messages-max", type=int, default=100, show_default=True, help="Messages per connection."
)
@click.option("--idle-seconds", type=float, default=30, show_default=True, help="Idle time.")
@click.option("--disabled", is_flag=True, help="Keep the relay, and send nothing through it.")
@data_dir_option
def set_(  # noqa: PLR0913  One argument per option.
    *,
    name: str,
    host: str,
    port: int,
    tls: TlsPolicy,
    username: str | None,
    priority: int,
    connections_max: int,
    messages_max: int,
    idle_seconds: float,
    disabled: bool,
    data_dir: Path | None,
) -> None:
    """Create or replace a relay."""
    password = None
    if username is not None:
        password = click.prompt("password", hide_input=True, err=True)
    made = SmtpRelay(
        name=name,
        host=host,
        port=port,
        tls=tls,
        username=username,
        password=password,
        priority=priority,
        connections_max=connections_max,
        messages_per_connection_max=messages_max,
        idle_time=timedelta(seconds=idle_seconds),
        is_enabled=not disabled,
    )
    vault = choose_vault(find_dsn(data_dir), data_dir)
    ask(data_dir, lambda db: put_relay(db, made, vault=vault, who=operator()))
    click.echo(f"relay {name} is set", err=True)


@relay.command("list")
@data_dir_option
@json_option
def list_(*, data_dir: Path | None, as_json: bool) -> None:
    """List the relays."""
    rows = [without(asdict(each), ["password", "fault"]) for each in ask(data_dir, list_relays)]
    print_rows(rows, as_json=as_json, none="there are no relays")


@relay.command()
@click.argument("name")
@data_dir_option
def remove(*, name: str, data_dir: Path | None) -> None:
    """Remove a relay; mails that name it wait."""
    ask(data_dir, lambda db: remove_relay(db, name, who=operator()))
    click.echo(f"relay {name} is removed", err=True)


@click.group()
def limit() -> None:
    """Set how many mails a relay, a sender, a domain or a group of domains gets."""


@limit.command("set")
@click.argument("scope", type=click.Choice(["relay", "sender", "domain", "group"]))
@click.argument("name")
@click.option("--per-second", type=float, help="Mails per second.")
@click.option("--per-minute", type=float, help="Mails per minute, spread over it.")
@click.option("--per-hour", type=int, help="Mails in each hour of UTC.")
@click.option("--per-day", type=int, help="Mails on each day of UTC.")
@data_dir_option
def set_limit(
    *,
    scope: LimitScope,
    name: str,
    per_second: float | None,
    per_minute: float | None,
    per_hour: int | None,
    per_day: int | None,
    data_dir: Path | None,
) -> None:
    """Set a limit; the name * is for all others. Without any number it is removed."""
    made = MailLimit(
        scope=scope,
        name=name,
        per_second=per_second,
        per_minute=per_minute,
        per_hour=per_hour,
        per_day=per_day,
    )
    ask(data_dir, lambda db: put_limit(db, made, who=operator()))


@limit.command("list")
@data_dir_option
@json_option
def list_of_limits(*, data_dir: Path | None, as_json: bool) -> None:
    """List the limits."""
    rows = [asdict(each) for each in ask(data_dir, list_limits)]
    print_rows(rows, as_json=as_json, none="there are no limits")


@click.group()
def group() -> None:
    """Group domains that one provider receives for, to limit them together."""


@group.command("set")
@click.argument("name")
@click.argument("domains", nargs=-1)
@data_dir_option
def set_group(*, name: str, domains: tuple[str, ...], data_dir: Path | None) -> None:
    """Let a group have these DOMAINS and no others; without any it is removed."""
    made = DomainGroup(name=name, domains=domains)
    ask(data_dir, lambda db: put_domain_group(db, made, who=operator()))


@group.command("list")
@data_dir_option
@json_option
def list_of_groups(*, data_dir: Path | None, as_json: bool) -> None:
    """List the groups of domains."""
    rows = [asdict(each) for each in ask(data_dir, list_domain_groups)]
    print_rows(rows, as_json=as_json, none="there are no groups")
