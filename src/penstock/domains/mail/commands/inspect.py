"""`penstock mail show`, `list` and `preview`."""

import asyncio
from dataclasses import asdict
from pathlib import Path

import click
from msgspec import structs

from penstock.console.database import ask, data_dir_option, lent_resources
from penstock.console.output import json_option, print_json, print_record, print_rows
from penstock.console.values import ITEM_ID, LIMIT, parse_when
from penstock.domains.mail.inspect import (
    MailFilter,
    MailStatus,
    MailView,
    PastResult,
    RecipientView,
    list_mails,
    list_past_results,
    list_recipients,
    read_mail,
)
from penstock.postgres.pool import Connection

STATUSES = ("queued", "dispatching", "sent", "failed", "cancelled")
SHOWN = ("id", "status", "retry_count", "recipients", "subject", "created_at", "last_error")


@click.command()
@click.argument("mail_id", metavar="ID", type=ITEM_ID)
@data_dir_option
@json_option
def show(*, mail_id: int, data_dir: Path | None, as_json: bool) -> None:
    """Show a mail, and the result of each recipient."""

    async def read(db: Connection) -> tuple[MailView, list[RecipientView], list[PastResult]]:
        found = await read_mail(db, mail_id)
        return found, await list_recipients(db, mail_id), await list_past_results(db, mail_id)

    found, recipients, past_results = ask(data_dir, read)
    rows = [structs.asdict(each) for each in recipients]
    past_rows = [structs.asdict(each) for each in past_results]
    if as_json:
        print_json({"mail": asdict(found), "recipients": rows, "past_results": past_rows})
        return
    print_record(asdict(found), as_json=False)
    click.echo()
    print_rows(rows, as_json=False, none="no recipients")
    if past_rows:
        click.echo("\nbefore replays:")
        print_rows(past_rows, as_json=False, none="")


@click.command("list")
@click.option("--recipient", help="Address of a recipient.")
@click.option("--tag", help="Tag of the mail.")
@click.option("--status", type=click.Choice(STATUSES), help="State of the mail.")
@click.option("--from", "from_", help="Accepted then or later.")
@click.option("--until", help="Accepted before.")
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="How many.")
@data_dir_option
@json_option
def list_(
    *,
    recipient: str | None,
    tag: str | None,
    status: MailStatus | None,
    from_: str | None,
    until: str | None,
    limit: int,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """List mails, the newest first.

    A filter by status looks at all mails until it has found enough; --recipient, --tag, --from and
    --until make that shorter.
    """
    only = MailFilter(
        recipient=recipient,
        tag=tag,
        status=status,
        from_at=parse_when(from_, field="--from"),
        until_at=parse_when(until, field="--until"),
    )
    # One more than is shown: then there are more.
    found = ask(data_dir, lambda db: _read_pages(db, only=only, limit=limit + 1))
    rows = [asdict(each) for each in found[:limit]]
    if not as_json:
        rows = [{name: row[name] for name in SHOWN} for row in rows]
    print_rows(rows, as_json=as_json, none="there are no mails here")
    if len(found) > limit:
        click.echo("there are more mails: raise --limit, or use --from and --until", err=True)


async def _read_pages(db: Connection, *, only: MailFilter, limit: int) -> list[MailView]:
    """Read until there are `limit` mails or no more; a page by status may be short."""
    mails: list[MailView] = []
    before: int | None = None
    while True:
        page = await list_mails(db, only=only, before=before, limit=limit - len(mails))
        mails, before = mails + page.mails, page.next
        if before is None or len(mails) == limit:
            return mails


@click.command()
@click.argument("mail_id", metavar="ID", type=ITEM_ID)
@data_dir_option
def preview(*, mail_id: int, data_dir: Path | None) -> None:
    """Print the message as a relay gets it, without a DKIM signature."""
    from penstock.domains.mail.loader import BlobReader, MailLoader  # noqa: PLC0415  An extra.
    from penstock.domains.mail.preview import Previewer  # noqa: PLC0415

    async def read() -> bytes:
        async with lent_resources(data_dir) as resources:
            loader = MailLoader(vault=resources.vault, default=None)
            previewer = Previewer(
                pool=resources.pool, loader=loader, blobs=BlobReader(resources.pool)
            )
            return (await previewer.preview(mail_id)).content

    click.echo(asyncio.run(read()), nl=False)
