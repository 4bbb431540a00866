"""The webhooks' commands: `penstock subscription`, `event`, `replay` and `listen`."""

from collections.abc import Sequence

import click

from penstock.domains.webhooks.commands.event import event
from penstock.domains.webhooks.commands.listen import listen_command
from penstock.domains.webhooks.commands.listen.temporary_subscription import (
    HintAt,
    TemporarySubscriptions,
)
from penstock.domains.webhooks.commands.replay import replay
from penstock.domains.webhooks.commands.subscription import subscription_group
from penstock.domains.webhooks.commands.subscription.service import OpenService


def commands(open_service: OpenService, hint_at: HintAt) -> Sequence[click.Command]:
    """Return the commands.

    `open_service` gives access to secrets and to the rules for URLs, `hint_at` names the setting
    that allows a URL.
    """
    temporary = TemporarySubscriptions(open_service=open_service, hint_at=hint_at)
    return (subscription_group(open_service), event, replay, listen_command(temporary))
