"""The command group `outbox`."""

import click

from penstock.domains.outbox.commands import approval, control, limits
from penstock.domains.outbox.commands.archive import MakeArchive
from penstock.domains.outbox.commands.instructions import list_, send, show
from penstock.domains.outbox.commands.rails import code, rail
from penstock.domains.outbox.commands.resolve import resolve
from penstock.domains.outbox.commands.verify import verify

VERBS = (
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
)


def outbox_group(make_archive: MakeArchive) -> click.Group:
    """Return the group; its verbs find `make_archive` as the context's object."""

    @click.group(name="outbox")
    @click.pass_context
    def outbox(context: click.Context) -> None:
        """Send payment instructions, show what became of them, and decide about doubtful ones.

        JSON output has the field names of the REST API.
        """
        context.obj = make_archive

    for verb in VERBS:
        outbox.add_command(verb)
    return outbox
