"""The noun `slots` and its verbs."""

import click

from penstock.cli.slots.assign import assign
from penstock.cli.slots.cancel import cancel
from penstock.cli.slots.config import config
from penstock.cli.slots.forecast import forecast
from penstock.cli.slots.inspect import list_, moves, show
from penstock.cli.slots.reflow import reflow


@click.group()
def slots() -> None:
    """Give events their slots, forecast, and change a pool's rule.

    JSON, in and out, has the field names of the REST API.
    """


for verb in (assign, show, list_, cancel, forecast, config, reflow, moves):
    slots.add_command(verb)
