"""`penstock subscription list`, `show` and `public-keys`: see subscriptions."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from penstock.console.database import ask, data_dir_option
from penstock.console.output import json_option, print_json, print_record, print_rows, raw, without
from penstock.console.values import LIMIT
from penstock.domains.webhooks import wire
from penstock.domains.webhooks.commands.subscription.service import ask_service
from penstock.domains.webhooks.commands.subscription.typed_options import (
    subscription_argument,
    utf8,
)
from penstock.domains.webhooks.subscription import (
    Subscription,
    list_subscriptions,
    read_subscription,
)
from penstock.domains.webhooks.wire import to_wire_subscription
from penstock.postgres.pool import Connection

COLUMNS = ("id", "state", "tenant", "event_types", "url")


@click.command("list")
@click.option("--tenant", callback=utf8, help="Only of this tenant.")
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="How many.")
@click.option("--after", metavar="ID", callback=utf8, help="Continue after this subscription.")
@data_dir_option
@json_option
def list_(
    *, tenant: str | None, limit: int, after: str | None, data_dir: Path | None, as_json: bool
) -> None:
    """List subscriptions, the oldest first."""

    async def read(db: Connection) -> list[Subscription]:
        number = 0
        if after is not None:
            number = (await read_subscription(db, after, also_deleted=True)).number
        return await list_subscriptions(db, tenant=tenant, after=number, limit=limit)

    found = ask(data_dir, read)
    if as_json:
        for each in found:
            print_json(to_wire_subscription(each))
        return
    rows = [{name: getattr(each, name) for name in COLUMNS} for each in found]
    print_rows(rows, as_json=False, none="there are no subscriptions here")


@click.command()
@subscription_argument
@data_dir_option
@json_option
def show(*, subscription_id: str, data_dir: Path | None, as_json: bool) -> None:
    """Show a subscription, with the names of its headers and without its secret."""
    print_subscription(
        ask(data_dir, lambda db: read_subscription(db, subscription_id)), as_json=as_json
    )


@click.command("public-keys")
@subscription_argument
@data_dir_option
@json_option
def public_keys(*, subscription_id: str, data_dir: Path | None, as_json: bool) -> None:
    """Show the public keys that verify ed25519 signatures, the newest first."""
    keys = ask_service(data_dir, lambda service, db: service.public_keys(db, subscription_id))
    if as_json:
        print_json(wire.PublicKeys(keys=keys))
        return
    for each in keys:
        click.echo(each)
    if not keys:
        click.echo("it signs with HMAC: there are no public keys", err=True)


def print_subscription(found: Subscription, *, as_json: bool) -> None:
    """Print what the REST API would answer, for programs as it stands, for people in words."""
    if as_json:
        print_json(to_wire_subscription(found))
    else:
        print_record(record_of(found), as_json=False)


def record_of(found: Subscription) -> dict[str, Any]:
    """Return the fields for people."""
    record = asdict(found) | {"filter": raw(found.filter)}
    return without(record, ["number", "version"])
