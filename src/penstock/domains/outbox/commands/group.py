"""The command group `outbox`."""

import click

from penstock.domains.outbox.commands import approval, control, limits
from penstock.domains.outbox.commands.instructions import list_, send, show
from penstock.domains.outbox.commands.rails import code, rail
from penstock.domains.outbox.commands.resolve import resolve
from penstock.domains.outbox.commands.verify import verify


@click.group()
def outbox() -> None:
    """Send payment instructions, show what became of them, and decide about doubtful ones.

    JSON output has the field names of the REST API.
    """


for verb in (
    send,
    show,
    list_,
    resolve,
    *approval.COMMANDS,
    *control.COMMANDS,
    *limits.COMMANDS,
    rail,
    code,
    verify,
):
    outbox.add_command(verb)
