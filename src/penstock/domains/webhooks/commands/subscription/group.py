"""The noun `subscription` and its verbs."""

import click

from penstock.domains.webhooks.commands.subscription.change import delete, pause, resume, set_
from penstock.domains.webhooks.commands.subscription.create import create
from penstock.domains.webhooks.commands.subscription.inspect import list_, public_keys, show
from penstock.domains.webhooks.commands.subscription.reseal import reseal
from penstock.domains.webhooks.commands.subscription.sample_event import test
from penstock.domains.webhooks.commands.subscription.secret import rotate_secret
from penstock.domains.webhooks.commands.subscription.service import OpenService

VERBS = (
    create, list_, show, set_, pause, resume, delete, rotate_secret, public_keys, test, reseal,
)  # fmt: skip


def subscription_group(open_service: OpenService) -> click.Group:
    """Return the group; its verbs find `open_service` as the context's object."""

    @click.group(name="subscription")
    @click.pass_context
    def subscription(context: click.Context) -> None:
        """Create and change subscriptions: which events are sent where, and how.

        JSON input and output have the field names of the REST API.
        """
        context.obj = open_service

    for verb in VERBS:
        subscription.add_command(verb)
    return subscription
