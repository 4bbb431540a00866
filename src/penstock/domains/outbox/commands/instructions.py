"""`penstock outbox send`, `show` and `list`."""

import asyncio
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import get_args
from uuid import UUID

import click
import msgspec

from penstock.base.errors import InvalidInput
from penstock.base.unique_keys import check_unique_keys
from penstock.console.database import ask, data_dir_option, lent_resources, operator
from penstock.console.output import json_option, print_json, print_record, print_rows
from penstock.console.values import LIMIT, parse_when
from penstock.domains.outbox import wire
from penstock.domains.outbox.enqueue import NewInstruction, Outbox
from penstock.domains.outbox.inspect import InstructionFilter, list_instructions, read_story
from penstock.domains.outbox.instruction import State
from penstock.domains.outbox.rails.registry import read_scheme

SHOWN = (
    "outbox_id",
    "participant_id",
    "sequence_id",
    "rail_type",
    "amount",
    "currency",
    "state",
    "attempt_count",
    "created_at",
)


@click.command()
@click.argument("instruction_id", metavar="ID")
@click.option("--participant", required=True, help="Participant that pays; its order is kept.")
@click.option("--key", required=True, help="Idempotency key.")
@click.option("--rail", required=True, help="Rail type.")
@click.option("--amount", required=True, help="Decimal number in units of the currency.")
@click.option("--currency", required=True, help="Code of ISO 4217.")
@click.option("--destination", required=True, help="Who is paid, as a JSON object.")
@data_dir_option
@json_option
def send(  # noqa: PLR0913  One argument per option.
    *,
    instruction_id: str,
    participant: str,
    key: str,
    rail: str,
    amount: str,
    currency: str,
    destination: str,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Accept an instruction; a worker sends it to the rail."""
    new = NewInstruction(
        instruction_id=instruction_id,
        participant_id=participant,
        idempotency_key=key,
        rail_type=rail,
        payload={
            "amount": amount,
            "currency": currency,
            "destination": _destination(destination),
        },
    )

    async def accept() -> dict[str, object]:
        async with lent_resources(data_dir) as resources:
            outbox = Outbox(pool=resources.pool, scheme_of=partial(read_scheme, resources.pool))
            accepted = await outbox.send(new, who=operator())
        return {
            "outbox_id": str(accepted.outbox_id),
            "sequence_id": accepted.sequence_id,
            "is_new": accepted.is_new,
        }

    print_record(asyncio.run(accept()), as_json=as_json)


@click.command()
@click.argument("outbox_id", metavar="OUTBOX_ID", type=click.UUID)
@data_dir_option
@json_option
def show(*, outbox_id: UUID, data_dir: Path | None, as_json: bool) -> None:
    """Show an instruction, where its item is, and what was tried."""
    story = ask(data_dir, lambda db: read_story(db, outbox_id))
    if as_json:
        print_json(wire.to_wire_detail(story))
        return
    print_record(asdict(story.instruction) | {"payload": story.payload}, as_json=False)
    click.echo()
    rows = [asdict(each) for each in story.attempts]
    print_rows(rows, as_json=False, none="nothing was tried yet")


@click.command("list")
@click.option("--participant", help="Participant that pays.")
@click.option("--rail", help="Rail type.")
@click.option("--state", type=click.Choice(get_args(State)), help="State of the instruction.")
@click.option("--instruction", help="Id that the producer gave.")
@click.option("--from", "from_", help="Accepted then or later.")
@click.option("--until", help="Accepted before.")
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="How many.")
@data_dir_option
@json_option
def list_(  # noqa: PLR0913  One argument per option.
    *,
    participant: str | None,
    rail: str | None,
    state: State | None,
    instruction: str | None,
    from_: str | None,
    until: str | None,
    limit: int,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """List instructions, the newest first."""
    only = InstructionFilter(
        participant_id=participant,
        rail_type=rail,
        state=state,
        instruction_id=instruction,
        from_at=parse_when(from_, field="--from"),
        until_at=parse_when(until, field="--until"),
    )
    page = ask(data_dir, lambda db: list_instructions(db, only=only, limit=limit))
    rows = [msgspec.structs.asdict(wire.to_wire_instruction(each)) for each in page.instructions]
    if not as_json:
        rows = [{name: row[name] for name in SHOWN} for row in rows]
    print_rows(rows, as_json=as_json, none="there are no instructions here")


def _destination(text: str) -> dict[str, object]:
    try:
        decoded = msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as refused:
        raise InvalidInput("--destination", f"is not a JSON object: {refused}") from None
    check_unique_keys(text)
    return decoded
