"""`penstock payment cancel` and `reschedule`."""

from pathlib import Path

import click

from penstock.base.errors import InvalidInput
from penstock.console.database import ask, data_dir_option, operator
from penstock.console.values import parse_when
from penstock.domains.payments import operate

reason_option = click.option("--reason", help="Why; it is kept in the audit.")


@click.command()
@click.argument("payment_id", metavar="ID")
@reason_option
@data_dir_option
def cancel(*, payment_id: str, reason: str | None, data_dir: Path | None) -> None:
    """Cancel a payment that is not executed, unless a worker has claimed it."""
    ask(data_dir, lambda db: operate.cancel(db, payment_id, who=operator(), reason=reason))
    click.echo(f"payment {payment_id} is cancelled", err=True)


@click.command()
@click.argument("payment_id", metavar="ID")
@click.argument("when", metavar="WHEN")
@reason_option
@data_dir_option
def reschedule(*, payment_id: str, when: str, reason: str | None, data_dir: Path | None) -> None:
    """Give a payment that no worker has claimed another instant, or a time from now such as +2h."""
    execute_at = parse_when(when, field="WHEN")
    if execute_at is None:
        raise InvalidInput("WHEN", "is missing")
    due_at = ask(
        data_dir,
        lambda db: operate.reschedule(db, payment_id, execute_at, who=operator(), reason=reason),
    )
    click.echo(f"payment {payment_id} is rescheduled to {due_at.isoformat()}", err=True)
