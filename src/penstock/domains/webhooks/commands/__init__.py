"""`penstock subscription`, `event` and `replay`: the webhooks' part of the command line."""

from collections.abc import Sequence

import click

from penstock.domains.webhooks.commands.event import event
from penstock.domains.webhooks.commands.replay import replay
from penstock.domains.webhooks.commands.subscription import subscription_group
from penstock.domains.webhooks.commands.subscription.service import OpenService


def commands(open_service: OpenService) -> Sequence[click.Command]:
    """Return the groups; `open_service` gives access to secrets and to the rules for URLs."""
    return (subscription_group(open_service), event, replay)
