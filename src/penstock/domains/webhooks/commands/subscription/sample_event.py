"""`penstock subscription test`: an event for one subscription alone."""

from pathlib import Path

import click

from penstock.console.database import ask, data_dir_option
from penstock.console.output import json_option, print_json, print_record
from penstock.domains.webhooks.commands.subscription.typed_options import (
    in_typed_words,
    subscription_argument,
)
from penstock.domains.webhooks.event import DEFAULT_TENANT, AcceptedEvent
from penstock.domains.webhooks.sample_event import send_test
from penstock.domains.webhooks.subscription import read_subscription
from penstock.postgres.pool import Connection


@click.command()
@subscription_argument
@data_dir_option
@json_option
def test(*, subscription_id: str, data_dir: Path | None, as_json: bool) -> None:
    """Send an event of the type penstock.test to one subscription, whatever its types are."""

    async def send(db: Connection) -> tuple[AcceptedEvent, str]:
        found = await read_subscription(db, subscription_id)
        return await send_test(db, subscription_id), found.tenant

    with in_typed_words():
        sent, tenant = ask(data_dir, send)
    shown = {"id": sent.event_id, "accepted_at": sent.accepted_at, "deliveries": sent.deliveries}
    if as_json:
        print_json(shown)
        return
    print_record(shown, as_json=False)
    option = "" if tenant == DEFAULT_TENANT else f" --tenant {tenant}"
    click.echo(f"see what became of it: penstock event show {sent.event_id}{option}", err=True)
