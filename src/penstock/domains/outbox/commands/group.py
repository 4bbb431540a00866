"""The command group `outbox`."""

import click


@click.group()
def outbox() -> None:
    """Send payment instructions, show what became of them, and decide about doubtful ones.

    JSON output has the field names of the REST API.
    """
