"""`penstock slots cancel`: cancel a slot."""

from pathlib import Path

import click

from penstock.console.database import ask, data_dir_option, operator
from penstock.console.output import json_option, print_json
from penstock.domains.slots.cancel import cancel as cancel_slot
from penstock.domains.slots.commands.typed_options import event_argument, naming_options


@click.command()
@event_argument
@data_dir_option
@json_option
def cancel(*, event_id: str, data_dir: Path | None, as_json: bool) -> None:
    """Cancel an event's slot, so that its place is free again; a repeat is harmless."""
    with naming_options():
        ask(data_dir, lambda db: cancel_slot(db, event_id, who=operator()))
    if as_json:
        print_json({"eventId": event_id, "cancelled": True})
    else:
        click.echo(f"the slot of event {event_id} is free again")
