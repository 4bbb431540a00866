"""`penstock payment schedule`: schedule a payment."""

import asyncio
from pathlib import Path
from typing import Any

import click
import msgspec

from penstock.console.database import data_dir_option, lent_resources, operator
from penstock.console.output import json_option, print_record
from penstock.console.values import parse_when
from penstock.domains.payments import wire
from penstock.domains.payments.commands.composed import find_steps
from penstock.domains.payments.payment import NewPayment, Notify, Party
from penstock.domains.payments.schedule import Payments


@click.command()
@click.argument("payment_id", metavar="ID")
@click.option("--amount", required=True, help="Decimal number in units of the currency.")
@click.option("--currency", required=True, help="Code of ISO 4217.")
@click.option("--debtor", required=True, help="Name of the debtor.")
@click.option("--debtor-iban", required=True, help="IBAN of who pays.")
@click.option("--creditor", required=True, help="Name of the creditor.")
@click.option("--creditor-iban", required=True, help="IBAN of who is paid.")
@click.option("--creditor-bic", help="BIC of who is paid.")
@click.option("--participant", required=True, help="Participant whose order is kept.")
@click.option("--rail", required=True, help="Rail type.")
@click.option("--at", "execute_at", help="When: an instant, or a time from now such as +2h.")
@click.option("--type", "item_type", default="PAYMENT", show_default=True, help="Item type.")
@click.option("--mail", help="E-mail address for notifications.")
@click.option("--event", is_flag=True, help="Publish events about the payment.")
@data_dir_option
@json_option
def schedule(  # noqa: PLR0913  One argument per option.
    *,
    payment_id: str,
    amount: str,
    currency: str,
    debtor: str,
    debtor_iban: str,
    creditor: str,
    creditor_iban: str,
    creditor_bic: str | None,
    participant: str,
    rail: str,
    execute_at: str | None,
    item_type: str,
    mail: str | None,
    event: bool,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Schedule a payment; a worker executes it when it is due."""
    new = NewPayment(
        payment_id=payment_id,
        amount=amount,
        currency=currency,
        debtor=Party(name=debtor, iban=debtor_iban),
        creditor=Party(name=creditor, iban=creditor_iban, bic=creditor_bic),
        participant_id=participant,
        rail_type=rail,
        item_type=item_type,
        execute_at=parse_when(execute_at, field="--at"),
        notify=Notify(mail=mail, event=event),
    )

    steps = find_steps()

    async def accept() -> dict[str, Any]:
        async with lent_resources(data_dir) as resources:
            payments = Payments(pool=resources.pool, steps=steps)
            scheduled = await payments.schedule(new, who=operator())
        shown = msgspec.structs.asdict(wire.to_wire_scheduled(scheduled))
        return shown | {"is_new": scheduled.is_new}

    print_record(asyncio.run(accept()), as_json=as_json)
