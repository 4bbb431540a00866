"""`penstock payment show` and `list`."""

from dataclasses import asdict
from pathlib import Path
from typing import get_args

import click
import msgspec

from penstock.console.database import ask, data_dir_option
from penstock.console.output import json_option, print_json, print_record, print_rows
from penstock.console.values import LIMIT, parse_when
from penstock.domains.payments import wire
from penstock.domains.payments.commands.composed import find_readers
from penstock.domains.payments.inspect import (
    PaymentDetail,
    PaymentFilter,
    PaymentView,
    list_payments,
    read_payment,
)
from penstock.domains.payments.payment import PaymentStatus
from penstock.domains.payments.story import Story, read_story
from penstock.postgres.pool import Connection

SHOWN = (
    "payment_id",
    "item_type",
    "status",
    "amount",
    "currency",
    "participant_id",
    "rail_type",
    "scheduled_at",
)


@click.command()
@click.argument("payment_id", metavar="ID")
@data_dir_option
@json_option
def show(*, payment_id: str, data_dir: Path | None, as_json: bool) -> None:
    """Show a payment and what happened to it; with --json, in each domain."""
    readers = find_readers()

    async def read(db: Connection) -> tuple[PaymentDetail, Story]:
        detail = await read_payment(db, payment_id)
        return detail, await read_story(db, detail, readers)

    detail, story = ask(data_dir, read)
    if as_json:
        print_json(wire.to_wire_story(detail, story))
    else:
        print_record(asdict(detail.payment) | _places(detail, story), as_json=False)


def _places(detail: PaymentDetail, story: Story) -> dict[str, object]:
    """Return where the payment is in other tables, as far as it is there."""
    item, slot, instruction = detail.item, story.slot, story.instruction
    found: dict[str, object] = {}
    if slot is not None:
        found |= {"slot_pool": slot.pool, "slot_at": slot.scheduled_at}
    if item is not None:
        found |= {"item_state": item.state, "attempts": item.attempts}
    if instruction is not None:
        found |= {"instruction_state": instruction.state, "instruction_reason": instruction.reason}
    return found


@click.command("list")
@click.option("--status", type=click.Choice(get_args(PaymentStatus)), help="Status of the payment.")
@click.option("--type", "item_type", help="Item type.")
@click.option("--participant", help="Participant that pays.")
@click.option("--from", "from_", help="Scheduled for then or later.")
@click.option("--until", help="Scheduled for before.")
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="How many.")
@data_dir_option
@json_option
def list_(
    *,
    status: PaymentStatus | None,
    item_type: str | None,
    participant: str | None,
    from_: str | None,
    until: str | None,
    limit: int,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """List payments, the last scheduled first.

    A filter by status, type or participant looks at all payments until it has found enough; --from
    and --until make that shorter.
    """
    only = PaymentFilter(
        status=status,
        item_type=item_type,
        participant_id=participant,
        from_at=parse_when(from_, field="--from"),
        until_at=parse_when(until, field="--until"),
    )
    # One more than is shown: then there are more.
    found = ask(data_dir, lambda db: _read_pages(db, only=only, limit=limit + 1))
    rows = [msgspec.structs.asdict(wire.to_wire_payment(each)) for each in found[:limit]]
    if not as_json:
        rows = [{name: row[name] for name in SHOWN} for row in rows]
    print_rows(rows, as_json=as_json, none="there are no payments here")
    if len(found) > limit:
        click.echo("there are more payments: raise --limit, or use --from and --until", err=True)


async def _read_pages(db: Connection, *, only: PaymentFilter, limit: int) -> list[PaymentView]:
    """Read until there are `limit` payments or no more; a page with a filter may be short."""
    payments: list[PaymentView] = []
    after: str | None = None
    while True:
        page = await list_payments(db, only=only, after=after, limit=limit - len(payments))
        payments, after = payments + page.payments, page.next
        if after is None or len(payments) == limit:
            return payments
