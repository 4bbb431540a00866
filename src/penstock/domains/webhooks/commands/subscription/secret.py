"""`penstock subscription rotate-secret`, and what is said about a secret when it is shown."""

from datetime import timedelta
from pathlib import Path
from typing import get_args

import click

from penstock.base.errors import InvalidInput
from penstock.console.database import data_dir_option, operator
from penstock.console.output import duration, json_option, print_json
from penstock.console.values import parse_duration
from penstock.domains.webhooks import wire
from penstock.domains.webhooks.commands.subscription.service import ask_service
from penstock.domains.webhooks.commands.subscription.typed_options import (
    in_typed_words,
    read_secret_word,
    subscription_argument,
    utf8,
)
from penstock.domains.webhooks.secret import PRIVATE_PREFIX, Profile, Scheme
from penstock.domains.webhooks.subscription import (
    OVERLAP,
    Subscription,
    SubscriptionService,
    read_subscription,
)
from penstock.postgres.pool import Connection

secret_option = click.option(
    "--secret", callback=utf8, help="Your own secret; - reads it from standard input."
)


@click.command("rotate-secret")
@subscription_argument
@secret_option
@click.option(
    "--scheme",
    type=click.Choice(get_args(Scheme)),
    default="hmac",
    show_default=True,
    help="How a generated secret signs.",
)
@click.option(
    "--overlap",
    metavar="DURATION",
    help=f"How long the previous secret also signs.  [{duration(OVERLAP)}]",
)
@data_dir_option
@json_option
def rotate_secret(
    *,
    subscription_id: str,
    secret: str | None,
    scheme: Scheme,
    overlap: str | None,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Sign with a new secret, and for a while also with the previous one; prints the new one."""
    brought = read_secret_word(secret)
    lasting = OVERLAP if overlap is None else parse_duration(overlap, field="--overlap")

    async def rotate(service: SubscriptionService, db: Connection) -> tuple[Subscription, str]:
        found = await read_subscription(db, subscription_id)
        check_scheme(scheme, found.profile)
        shown = await service.rotate_secret(
            db, subscription_id, secret=brought, scheme=scheme, overlap=lasting, who=operator()
        )
        return found, shown

    with in_typed_words():
        found, shown = ask_service(data_dir, rotate)
    if as_json:
        print_json(wire.Secret(secret=shown))
        return
    click.echo(shown)
    to_wire_secret(found, shown)
    click.echo(_overlap(found, lasting), err=True)


def check_scheme(scheme: Scheme, profile: Profile) -> None:
    """Raise InvalidInput for a scheme whose keys would be mere text to the profile's receivers."""
    if scheme != "hmac" and profile in {"github", "stripe"}:
        raise InvalidInput("--scheme", f"{scheme} is unknown to receivers of profile {profile}")


def to_wire_secret(made: Subscription, secret: str) -> None:
    """Say what to do with a secret that nobody can read again."""
    if secret.startswith(PRIVATE_PREFIX) and made.profile in {"standard", "svix"}:
        line = f"shown this once; receivers need: penstock subscription public-keys {made.id}"
    else:
        line = "shown this once: give it to the receiver, which verifies with it"
    click.echo(line, err=True)


def _overlap(found: Subscription, lasting: timedelta) -> str:
    if found.profile == "github":
        return "its header holds one signature: the previous secret no longer signs"
    if lasting == timedelta(0):
        return "the previous secret no longer signs"
    return f"the previous secret also signs for {duration(lasting)}"
