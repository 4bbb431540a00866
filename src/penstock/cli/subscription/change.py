"""`penstock subscription set`, `pause`, `resume` and `delete`."""

from pathlib import Path
from typing import Any, Literal, Unpack

import click

from penstock.base.errors import InvalidInput
from penstock.cli.output import confirm, json_option, print_json
from penstock.cli.place import ask, data_dir_option, operator
from penstock.cli.subscription.inspect import print_subscription
from penstock.cli.subscription.office import ask_office
from penstock.cli.subscription.options import Typed, common_options, read_changes
from penstock.cli.subscription.words import (
    in_typed_words,
    parse_types,
    subscription_argument,
    utf8,
)
from penstock.domains.webhooks.subscription import Subscription, read_subscription


@click.command("set")
@subscription_argument
@click.option("--url", callback=utf8, help="Where to.")
@click.option(
    "--type",
    "event_types",
    multiple=True,
    metavar="EVENT_TYPE",
    callback=utf8,
    help="Which events, instead of those before; may be given again.",
)
@common_options
@data_dir_option
@json_option
def set_(
    *,
    subscription_id: str,
    url: str | None,
    event_types: tuple[str, ...],
    data_dir: Path | None,
    as_json: bool,
    **typed: Unpack[Typed],
) -> None:
    """Change a subscription; what is not given stays as it is.

    `none` takes a filter, an ordering key, a rate limit, a retry schedule or all headers away. It
    holds for attempts that are made from now on.
    """
    changes = read_changes(typed)
    if url is not None:
        changes["url"] = url
    if event_types:
        changes["event_types"] = parse_types(event_types)
    if not changes:
        raise InvalidInput("changes", "give at least one option")
    changed = _change(subscription_id, data_dir, changes)
    print_subscription(changed, as_json=as_json)


@click.command()
@subscription_argument
@data_dir_option
@json_option
def pause(*, subscription_id: str, data_dir: Path | None, as_json: bool) -> None:
    """Send nothing until it is resumed.

    What is under way waits. Events that come meanwhile are kept, and sent by a replay.
    """
    _switch(subscription_id, data_dir, "paused", as_json=as_json)


@click.command()
@subscription_argument
@data_dir_option
@json_option
def resume(*, subscription_id: str, data_dir: Path | None, as_json: bool) -> None:
    """Let a paused or disabled subscription go on."""
    _switch(subscription_id, data_dir, "active", as_json=as_json)


@click.command()
@subscription_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@data_dir_option
@json_option
def delete(*, subscription_id: str, yes: bool, data_dir: Path | None, as_json: bool) -> None:
    """End a subscription for good; what is under way to it ends dead."""
    if not yes:
        found = ask(data_dir, lambda db: read_subscription(db, subscription_id))
        confirm(f"Delete subscription {found.id} to {found.url}?")
    _change(subscription_id, data_dir, {"state": "deleted"})
    if as_json:
        print_json({"id": subscription_id, "deleted": True})
    else:
        click.echo(f"subscription {subscription_id} is deleted")


def _switch(
    subscription_id: str,
    data_dir: Path | None,
    state: Literal["active", "paused"],
    *,
    as_json: bool,
) -> None:
    changed = _change(subscription_id, data_dir, {"state": state})
    if as_json:
        print_subscription(changed, as_json=True)
    else:
        click.echo(f"subscription {changed.id} is {changed.state}")
        if state == "active":
            line = f"what came meanwhile: penstock replay start {changed.id}"
            click.echo(line, err=True)


def _change(subscription_id: str, data_dir: Path | None, changes: dict[str, Any]) -> Subscription:
    with in_typed_words():
        return ask_office(
            data_dir,
            lambda office, db: office.change(db, subscription_id, changes, who=operator()),
        )
