"""The command group `slots`."""

import click

from penstock.domains.slots.commands.assign import assign
from penstock.domains.slots.commands.cancel import cancel
from penstock.domains.slots.commands.config import config
from penstock.domains.slots.commands.forecast import forecast
from penstock.domains.slots.commands.inspect import list_, moves, show
from penstock.domains.slots.commands.reflow import reflow


@click.group()
def slots() -> None:
    """Assign slots to events, forecast, and change a pool's rule.

    JSON input and output have the field names of the REST API.
    """


for verb in (assign, show, list_, cancel, forecast, config, reflow, moves):
    slots.add_command(verb)
