"""`penstock subscription reseal`: the step of a change of PENSTOCK_SECRET_KEY that takes time."""

import sys
from dataclasses import asdict
from pathlib import Path

import click

from penstock.console.database import data_dir_option, operator
from penstock.console.exits import Exit
from penstock.console.output import json_option, print_json, progress_bar
from penstock.domains.webhooks.commands.subscription.service import ask_service
from penstock.domains.webhooks.reseal import Resealed, count_seals
from penstock.domains.webhooks.reseal import reseal as reseal_all
from penstock.domains.webhooks.subscription import SubscriptionService
from penstock.postgres.pool import Connection


@click.command()
@click.option("--dry-run", is_flag=True, help="Only count what is sealed with another key.")
@data_dir_option
@json_option
def reseal(*, dry_run: bool, data_dir: Path | None, as_json: bool) -> None:
    """Seal all secrets and headers with the first key of PENSTOCK_SECRET_KEY.

    After that the other keys can be removed. Receivers are not affected, and all processes may run
    meanwhile. Exits with 1 if a key is missing, and names the subscriptions.
    """
    if dry_run:
        secrets, headers = ask_service(data_dir, _count)
        if as_json:
            print_json({"secrets": secrets, "headers": headers})
        else:
            click.echo(f"{_counted(secrets, headers)} would be resealed")
        return
    resealed = ask_service(data_dir, _reseal)
    if as_json:
        print_json(asdict(resealed))
    else:
        _print(resealed)
    if resealed.unopened:
        sys.exit(Exit.FAILED)


async def _count(service: SubscriptionService, db: Connection) -> tuple[int, int]:
    """Return how many secrets and sets of headers another key than the current one has sealed."""
    current = service.vault.mark
    old = [each for each in await count_seals(db) if each.mark != current]
    return sum(each.secrets for each in old), sum(each.headers for each in old)


async def _reseal(service: SubscriptionService, db: Connection) -> Resealed:
    total = sum(await _count(service, db))
    with progress_bar() as progress:
        task = progress.add_task("reseal", total=total)
        return await reseal_all(
            db,
            service.vault,
            who=operator(),
            on_step=lambda count: progress.advance(task, count),
        )


def _print(resealed: Resealed) -> None:
    if resealed.secrets or resealed.headers:
        click.echo(f"{_counted(resealed.secrets, resealed.headers)} were resealed")
    elif not resealed.unopened:
        click.echo("everything is sealed with the current key")
    if resealed.unopened:
        click.echo(
            "no key of PENSTOCK_SECRET_KEY opens what these have: " + ", ".join(resealed.unopened),
            err=True,
        )


def _counted(secrets: int, headers: int) -> str:
    return f"{secrets:,} secrets and the headers of {headers:,} subscriptions"
