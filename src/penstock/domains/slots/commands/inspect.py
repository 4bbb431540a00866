"""`penstock slots show`, `list` and `moves`: show slots, and the moves of reflows."""

from datetime import datetime
from pathlib import Path

import click
import msgspec

from penstock.calendar.instant import END_AT, EPOCH
from penstock.console.database import ask, data_dir_option
from penstock.console.output import json_option, print_json, print_rows, without
from penstock.console.values import ID_MAX, LIMIT, parse_instant
from penstock.domains.slots.commands.typed_options import (
    config_option,
    event_argument,
    naming_options,
    print_wire,
    readable,
    utf8,
)
from penstock.domains.slots.config import read_config
from penstock.domains.slots.inspect import list_moves, list_slots, read_slot
from penstock.domains.slots.slot import Slot
from penstock.domains.slots.wire import to_wire_move, to_wire_slot
from penstock.postgres.pool import Connection


@click.command()
@event_argument
@data_dir_option
@json_option
def show(*, event_id: str, data_dir: Path | None, as_json: bool) -> None:
    """Show the slot of an event."""
    slot = ask(data_dir, lambda db: read_slot(db, event_id))
    print_wire(to_wire_slot(slot), as_json=as_json)


@click.command("list")
@config_option
@click.option("--from", "from_", metavar="INSTANT", help="Scheduled then or later.")
@click.option("--until", metavar="INSTANT", help="Scheduled before.")
@click.option("--after", metavar="EVENT_ID", callback=utf8, help="Continue after this slot.")
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="How many.")
@data_dir_option
@json_option
def list_(
    *,
    pool: str,
    from_: str | None,
    until: str | None,
    after: str | None,
    limit: int,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """List a pool's slots by window and position."""
    from_at = EPOCH if from_ is None else parse_instant(from_, field="--from")
    until_at = END_AT if until is None else parse_instant(until, field="--until")

    async def read(db: Connection) -> list[Slot]:
        await read_config(db, pool)
        return await list_slots(
            db,
            pool,
            from_at=from_at,
            until_at=until_at,
            created_from=EPOCH,
            after=await _place(db, after),
            limit=limit,
        )

    with naming_options():
        found = [to_wire_slot(slot) for slot in ask(data_dir, read)]
    if as_json:
        for each in found:
            print_json(each)
        return
    rows = [without(readable(each), ["config_name", "config_id", "created_at"]) for each in found]
    print_rows(rows, as_json=False, none=f"pool {pool} has no such slots")


async def _place(db: Connection, event_id: str | None) -> tuple[datetime, int]:
    if event_id is None:
        return EPOCH, -1
    slot = await read_slot(db, event_id)
    return slot.window_at, slot.position


@click.command()
@click.option("--reflow", "reflow_id", type=click.IntRange(1, ID_MAX), help="Only of this reflow.")
@click.option(
    "--after",
    type=click.IntRange(0, ID_MAX),
    metavar="ID",
    default=0,
    help="Continue after it.",
)
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="How many.")
@data_dir_option
@json_option
def moves(
    *, reflow_id: int | None, after: int, limit: int, data_dir: Path | None, as_json: bool
) -> None:
    """List the moves of reflows, in the order they were made."""
    found = ask(data_dir, lambda db: list_moves(db, after=after, reflow_id=reflow_id, limit=limit))
    if as_json:
        for each in found:
            print_json({"moveId": each.move_id} | msgspec.to_builtins(to_wire_move(each)))
        return
    rows = [{"move_id": each.move_id} | readable(to_wire_move(each)) for each in found]
    print_rows(rows, as_json=False, none="there are no such moves")
