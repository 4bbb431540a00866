"""`penstock slots assign`: a slot for one event, or for each line of a file."""

import sys
from pathlib import Path
from typing import BinaryIO

import click

from penstock.cli.exits import Exit
from penstock.cli.output import json_option
from penstock.cli.place import ask, data_dir_option
from penstock.cli.slots.many import assign_lines
from penstock.cli.slots.words import in_typed_words, print_told, utf8
from penstock.cli.values import parse_instant
from penstock.domains.slots.assign import SlotRequest
from penstock.domains.slots.assign import assign as take
from penstock.domains.slots.config import DEFAULT
from penstock.domains.slots.tell import tell_assigned, tell_slot


@click.command()
@click.argument("event_id", required=False, callback=utf8)
@click.option("--at", metavar="INSTANT", help="At this instant or after it; +5m is from now.")
@click.option("--config", "pool", metavar="NAME", callback=utf8, help=f"Which pool.  [{DEFAULT}]")
@click.option(
    "--file",
    "source",
    type=click.File("rb"),
    help='Many, one per line: {"eventId": ..., "requestedTime": ...}; - for standard input.',
)
@data_dir_option
@json_option
def assign(
    *,
    event_id: str | None,
    at: str | None,
    pool: str | None,
    source: BinaryIO | None,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Give an event the first free slot at or after an instant.

    The same request again has the same answer; the event with another instant or pool is a
    conflict. With --file each line is answered for itself, and the command ends with 1 if one of
    them got no slot.
    """
    if source is not None:
        if event_id or at or pool:
            raise click.UsageError("with --file, eventId, requestedTime, configName are its lines'")
        with in_typed_words():
            if not assign_lines(source, data_dir, as_json=as_json):
                sys.exit(Exit.FAILED)
        return
    if event_id is None or at is None:
        raise click.UsageError("give either EVENT_ID and --at, or --file")
    request = SlotRequest(event_id, parse_instant(at, field="--at"))
    with in_typed_words():
        slot = ask(data_dir, lambda db: take(db, pool or DEFAULT, request))
    print_told(tell_assigned(slot) if as_json else tell_slot(slot), as_json=as_json)
