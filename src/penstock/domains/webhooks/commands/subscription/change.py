"""`penstock subscription set`, `pause`, `resume` and `delete`."""

from datetime import UTC
from pathlib import Path
from typing import Any, Literal, Unpack

import click

from penstock.base.errors import InvalidInput
from penstock.console.database import ask, data_dir_option, operator
from penstock.console.output import confirm, json_option, print_json
from penstock.domains.webhooks.commands.subscription.inspect import print_subscription
from penstock.domains.webhooks.commands.subscription.options import (
    Typed,
    common_options,
    read_changes,
)
from penstock.domains.webhooks.commands.subscription.service import ask_service
from penstock.domains.webhooks.commands.subscription.typed_options import (
    in_typed_words,
    parse_types,
    subscription_argument,
    utf8,
)
from penstock.domains.webhooks.subscription import (
    Subscription,
    inactive_since,
    read_subscription,
)


@click.command("set")
@subscription_argument
@click.option("--url", callback=utf8, help="URL to send events to.")
@click.option(
    "--type",
    "event_types",
    multiple=True,
    metavar="EVENT_TYPE",
    callback=utf8,
    help="Types of events, instead of the present ones; may be given again.",
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
    """Change a subscription; omitted options keep their value.

    `none` removes a filter, an ordering key, a rate limit, a retry schedule or all headers. Changes
    apply to attempts that are made from now on.
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
    """Pause a subscription until it is resumed.

    Unfinished deliveries wait. Events that are accepted meanwhile can be sent by a replay.
    """
    _switch(subscription_id, data_dir, "paused", as_json=as_json)


@click.command()
@subscription_argument
@data_dir_option
@json_option
def resume(*, subscription_id: str, data_dir: Path | None, as_json: bool) -> None:
    """Resume a paused or disabled subscription.

    Prints the replay that sends the events which were accepted meanwhile.
    """
    since = ask(data_dir, lambda db: inactive_since(db, subscription_id))
    _switch(subscription_id, data_dir, "active", as_json=as_json)
    if since is not None and not as_json:
        # From then on, and not from the beginning: it may have had reasons to begin when it did.
        instant = since.astimezone(UTC).isoformat()
        line = f"what came meanwhile: penstock replay start {subscription_id} --from {instant}"
        click.echo(line, err=True)


@click.command()
@subscription_argument
@click.option("--yes", is_flag=True, help="Do not ask; required where no terminal is attached.")
@data_dir_option
@json_option
def delete(*, subscription_id: str, yes: bool, data_dir: Path | None, as_json: bool) -> None:
    """Delete a subscription; asks first. Its unfinished deliveries end dead."""
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


def _change(subscription_id: str, data_dir: Path | None, changes: dict[str, Any]) -> Subscription:
    with in_typed_words():
        return ask_service(
            data_dir,
            lambda service, db: service.change(db, subscription_id, changes, who=operator()),
        )
