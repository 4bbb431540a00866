"""`penstock subscription create`: a new subscription, whose secret is shown once."""

from pathlib import Path
from typing import Unpack, get_args

import click

from penstock.cli.output import json_option, print_json, print_record
from penstock.cli.place import data_dir_option, operator
from penstock.cli.subscription.inspect import record_of
from penstock.cli.subscription.office import ask_office
from penstock.cli.subscription.options import Typed, common_options, read_changes
from penstock.cli.subscription.secret import check_scheme, secret_option, tell_secret
from penstock.cli.subscription.words import (
    in_typed_words,
    parse_types,
    read_secret_word,
    tenant_option,
    utf8,
)
from penstock.domains.webhooks import wire
from penstock.domains.webhooks.secret import PROFILES, Profile, Scheme
from penstock.domains.webhooks.subscription import NewSubscription
from penstock.domains.webhooks.tell import tell_subscription


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
    help="Whose headers and signatures the receiver knows.",
)
@click.option(
    "--scheme",
    type=click.Choice(get_args(Scheme)),
    default="hmac",
    show_default=True,
    help="What a secret that is made here signs with.",
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
    """Send events of these types to URL, from now on.

    An event type is such as order.paid; order.* is all that begins so, * is all. The secret is
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
        made, shown = ask_office(
            data_dir, lambda office, db: office.create(db, new, who=operator())
        )
    if as_json:
        print_json(wire.CreatedSubscription(subscription=tell_subscription(made), secret=shown))
        return
    print_record(record_of(made) | {"secret": shown}, as_json=False)
    tell_secret(made, shown)
