"""The command group `mail`."""

import click

from penstock.domains.mail.commands.inspect import list_, preview, show
from penstock.domains.mail.commands.operate import cancel, replay
from penstock.domains.mail.commands.relay import group, limit, relay
from penstock.domains.mail.commands.send import send
from penstock.domains.mail.commands.suppress import suppress
from penstock.domains.mail.commands.template import template


@click.group()
def mail() -> None:
    """Send mails, show what became of them, and set relays, limits and templates.

    JSON output has the field names of the REST API.
    """


for verb in (send, show, list_, preview, cancel, replay, suppress, relay, limit, group, template):
    mail.add_command(verb)
