"""`penstock slots cancel`: give a slot back."""

from pathlib import Path

import click

from penstock.cli.output import json_option, print_json
from penstock.cli.place import ask, data_dir_option, operator
from penstock.cli.slots.words import event_argument, in_typed_words
from penstock.domains.slots.cancel import cancel as give_back


@click.command()
@event_argument
@data_dir_option
@json_option
def cancel(*, event_id: str, data_dir: Path | None, as_json: bool) -> None:
    """Give an event's slot back to the next caller; a repeat is harmless."""
    with in_typed_words():
        ask(data_dir, lambda db: give_back(db, event_id, who=operator()))
    if as_json:
        print_json({"eventId": event_id, "cancelled": True})
    else:
        click.echo(f"the slot of event {event_id} is free again")
