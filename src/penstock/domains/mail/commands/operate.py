"""`penstock mail cancel` and `replay`."""

from pathlib import Path

import click

from penstock.console.database import ask, data_dir_option, operator
from penstock.console.values import ITEM_ID
from penstock.domains.mail.operate import cancel_mail, replay_mail


@click.command()
@click.argument("mail_id", metavar="ID", type=ITEM_ID)
@data_dir_option
def cancel(*, mail_id: int, data_dir: Path | None) -> None:
    """Cancel a mail that no worker has claimed."""
    ask(data_dir, lambda db: cancel_mail(db, mail_id, who=operator()))
    click.echo(f"mail {mail_id} is cancelled", err=True)


@click.command()
@click.argument("mail_id", metavar="ID", type=ITEM_ID)
@data_dir_option
def replay(*, mail_id: int, data_dir: Path | None) -> None:
    """Try a failed or held mail again, for recipients that did not get it."""
    ask(data_dir, lambda db: replay_mail(db, mail_id, who=operator()))
    click.echo(f"mail {mail_id} is queued again", err=True)
