"""`penstock subscription create`: a new subscription, whose secret is shown once."""

from pathlib import Path
from typing import Unpack, get_args

import click

from penstock.console.database import data_dir_option, operator
from penstock.console.output import json_option, print_json, print_record
from penstock.domains.webhooks import wire
from penstock.domains.webhooks.commands.subscription.inspect import record_of
from penstock.domains.webhooks.commands.subscription.options import (
    Typed,
    common_options,
    read_changes,
)
from penstock.domains.webhooks.commands.subscription.secret import (
    check_scheme,
    secret_option,
    to_wire_secret,
)
from penstock.domains.webhooks.commands.subscription.service import ask_service
from penstock.domains.webhooks.commands.subscription.typed_options import (
    in_typed_words,
    parse_types,
    read_secret_word,
    tenant_option,
    utf8,
)
from penstock.domains.webhooks.secret import PROFILES, Profile, Scheme
from penstock.domains.webhooks.subscription import NewSubscription
from penstock.domains.webhooks.wire import to_wire_subscription


@click.command()
@click.argument("url", callback=utf8)
@click.argument("event_types", metavar="EVENT_TYPE...", nargs=-1, required=True, callback=utf8)
@tenant_option
@common_options
@click.option(
    "--profile",
    type=click.Choice(PROFILES),
    default="standard",
    show_default=True,
    help="Form of headers and signatures.",
)
@click.option(
    "--scheme",
    type=click.Choice(get_args(Scheme)),
    default="hmac",
    show_default=True,
    help="How a generated secret signs.",
)
@secret_option
@data_dir_option
@json_option
def create(
    *,
    url: str,
    event_types: tuple[str, ...],
    tenant: str,
    profile: Profile,
    scheme: Scheme,
    secret: str | None,
    data_dir: Path | None,
    as_json: bool,
    **typed: Unpack[Typed],
) -> None:
    """Create a subscription: send events of these types to URL, from now on.

    An event type is such as order.paid; order.* means all that begin so, * means all. The secret is
    printed once, and stored encrypted.
    """
    check_scheme(scheme, profile)
    new = NewSubscription(
        url=url,
        event_types=parse_types(event_types),
        tenant=tenant,
        profile=profile,
        scheme=scheme,
        secret=read_secret_word(secret),
        **read_changes(typed),
    )
    with in_typed_words(event_types="EVENT_TYPE", url="URL"):
        made, shown = ask_service(
            data_dir, lambda service, db: service.create(db, new, who=operator())
        )
    if as_json:
        print_json(wire.CreatedSubscription(subscription=to_wire_subscription(made), secret=shown))
        return
    print_record(record_of(made) | {"secret": shown}, as_json=False)
    to_wire_secret(made, shown)
