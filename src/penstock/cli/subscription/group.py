"""The noun `subscription` and its verbs."""

import click

from penstock.cli.subscription.change import delete, pause, resume, set_
from penstock.cli.subscription.create import create
from penstock.cli.subscription.inspect import list_, public_keys, show
from penstock.cli.subscription.reseal import reseal
from penstock.cli.subscription.secret import rotate_secret
from penstock.cli.subscription.trial import test


@click.group()
def subscription() -> None:
    """Say who gets which events as webhooks, where, and how.

    JSON, in and out, has the field names of the REST API.
    """


for verb in (
    create, list_, show, set_, pause, resume, delete, rotate_secret, public_keys, test, reseal,
):  # fmt: skip
    subscription.add_command(verb)
