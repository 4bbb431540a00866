"""`penstock slots assign`: assign a slot to one event, or to each line of a file."""

import sys
from pathlib import Path
from typing import BinaryIO

import click

from penstock.console.database import ask, data_dir_option
from penstock.console.exits import Exit
from penstock.console.output import json_option, print_json, print_record
from penstock.console.values import parse_instant
from penstock.domains.slots.assign import SlotRequest, assign_many, slot_of
from penstock.domains.slots.commands.many import assign_lines
from penstock.domains.slots.commands.typed_options import naming_options, readable, utf8
from penstock.domains.slots.config import DEFAULT
from penstock.domains.slots.wire import to_wire_assigned, to_wire_slot


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
    """Assign the first free slot at or after an instant to an event.

    An event that has a slot gets that slot again, for any instant and pool; in a strict pool,
    another instant or pool is a conflict. Lines of a file are objects with `eventId`,
    `requestedTime` and optionally `configName`; each has its own result, and the exit code is 1 if
    one of them got no slot.
    """
    if source is not None:
        if event_id or at or pool:
            raise click.UsageError(
                "with --file, put eventId, requestedTime, configName in its lines"
            )
        with naming_options():
            if not assign_lines(source, data_dir, as_json=as_json):
                sys.exit(Exit.FAILED)
        return
    if event_id is None or at is None:
        raise click.UsageError("give either EVENT_ID and --at, or --file")
    request = SlotRequest(event_id, parse_instant(at, field="--at"))
    with naming_options():
        (given,) = ask(data_dir, lambda db: assign_many(db, pool or DEFAULT, [request]))
        slot = slot_of(given, pool or DEFAULT, request)
    if as_json:
        print_json(to_wire_assigned(given))
    else:
        print_record({"outcome": given.outcome} | readable(to_wire_slot(slot)), as_json=False)
