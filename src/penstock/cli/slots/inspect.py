"""`penstock slots show`, `list` and `moves`: see slots, and what reflows have done to them."""

from datetime import datetime
from pathlib import Path

import click
import msgspec

from penstock.cli.output import json_option, print_json, print_rows, without
from penstock.cli.place import ask, data_dir_option
from penstock.cli.slots.words import (
    config_option,
    event_argument,
    in_typed_words,
    print_told,
    readable,
    utf8,
)
from penstock.cli.values import ID_MAX, LIMIT, parse_instant
from penstock.domains.slots.calendar import END_AT
from penstock.domains.slots.config import read_config
from penstock.domains.slots.inspect import list_moves, list_slots, read_slot
from penstock.domains.slots.slot import BEGINNING, Slot
from penstock.domains.slots.tell import tell_move, tell_slot
from penstock.postgres.pool import Connection


@click.command()
@event_argument
@data_dir_option
@json_option
def show(*, event_id: str, data_dir: Path | None, as_json: bool) -> None:
    """Show the slot of an event."""
    slot = ask(data_dir, lambda db: read_slot(db, event_id))
    print_told(tell_slot(slot), as_json=as_json)


@click.command("list")
@config_option
@click.option("--from", "from_", metavar="INSTANT", help="Scheduled then or later.")
@click.option("--until", metavar="INSTANT", help="Scheduled before.")
@click.option("--after", metavar="EVENT_ID", callback=utf8, help="Go on after this event's slot.")
@click.option("--limit", type=LIMIT, default=20, show_default=True)
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
    """List a pool's slots by window and place."""
    from_at = BEGINNING if from_ is None else parse_instant(from_, field="--from")
    until_at = END_AT if until is None else parse_instant(until, field="--until")

    async def read(db: Connection) -> list[Slot]:
        await read_config(db, pool)
        return await list_slots(
            db,
            pool,
            from_at=from_at,
            until_at=until_at,
            created_from=BEGINNING,
            after=await _place(db, after),
            limit=limit,
        )

    with in_typed_words():
        found = [tell_slot(slot) for slot in ask(data_dir, read)]
    if as_json:
        for each in found:
            print_json(each)
        return
    rows = [without(readable(each), ["config_name", "config_id", "created_at"]) for each in found]
    print_rows(rows, as_json=False, none=f"pool {pool} has no slots here")


async def _place(db: Connection, event_id: str | None) -> tuple[datetime, int]:
    if event_id is None:
        return BEGINNING, -1
    slot = await read_slot(db, event_id)
    return slot.window_at, slot.position


@click.command()
@click.option("--reflow", "reflow_id", type=click.IntRange(1, ID_MAX), help="Of this one only.")
@click.option(
    "--after", type=click.IntRange(0, ID_MAX), metavar="ID", default=0, help="Go on after this one."
)
@click.option("--limit", type=LIMIT, default=20, show_default=True)
@data_dir_option
@json_option
def moves(
    *, reflow_id: int | None, after: int, limit: int, data_dir: Path | None, as_json: bool
) -> None:
    """List what reflows have moved, in the order it was moved."""
    found = ask(data_dir, lambda db: list_moves(db, after=after, reflow_id=reflow_id, limit=limit))
    if as_json:
        for each in found:
            print_json({"moveId": each.move_id} | msgspec.to_builtins(tell_move(each)))
        return
    rows = [{"move_id": each.move_id} | readable(tell_move(each)) for each in found]
    print_rows(rows, as_json=False, none="no slots have been moved here")
