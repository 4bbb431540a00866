"""`penstock outbox verify`: compare the archive with its seals."""

import sys
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import click

from penstock.console.database import ask, data_dir_option
from penstock.console.exits import Exit
from penstock.console.output import json_option, print_json, print_rows, progress_bar
from penstock.domains.outbox.audit.verify import (
    FAULTS_MAX,
    Verified,
    count_sealed,
    parse_head,
    read_head,
)
from penstock.domains.outbox.audit.verify import verify as verify_archive
from penstock.postgres.pool import Connection


@click.command()
@click.option("--head", is_flag=True, help="Only print the last seal, to be kept elsewhere.")
@click.option(
    "--expect",
    help="A seal that was kept: the chain must contain it, and no month be dropped since.",
)
@click.option(
    "--dropped",
    metavar="MONTH",
    multiple=True,
    type=click.DateTime(formats=["%Y-%m"]),
    help="With --expect: a month that may be dropped since, such as 2030-01; may be given again.",
)
@data_dir_option
@json_option
def verify(
    *,
    head: bool,
    expect: str | None,
    dropped: tuple[datetime, ...],
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Find rows of the archive that were changed, removed or inserted after they were sealed.

    The exit code is 1 if there is one. Keep what --head prints outside of this database: only then
    can --expect show that the whole chain was written anew.
    """
    if dropped and expect is None:
        raise click.UsageError("--dropped is only for --expect")
    if head:
        _print_head(data_dir, as_json=as_json)
        return
    kept = None if expect is None else parse_head(expect, field="--expect")

    async def compare(db: Connection) -> Verified:
        with progress_bar() as bar:
            task = bar.add_task("rows", total=await count_sealed(db))
            return await verify_archive(
                db,
                kept=kept,
                may_drop=[each.date() for each in dropped],
                on_progress=lambda rows: bar.update(task, completed=rows),
            )

    found = ask(data_dir, compare)
    _print(found, as_json=as_json)
    if found.faults:
        sys.exit(Exit.FAILED)


def _print_head(data_dir: Path | None, *, as_json: bool) -> None:
    last = ask(data_dir, read_head)
    if as_json:
        print_json(None if last is None else asdict(last))
    elif last is None:
        click.echo("nothing is sealed yet", err=True)
    else:
        click.echo(last)


def _print(found: Verified, *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(found))
        return
    print_rows([asdict(each) for each in found.faults], as_json=False, none="nothing is wrong")
    click.echo(
        f"{found.rows} rows in {found.seals} seals compared, "
        f"{len(found.faults)} faults, {found.unsealed} rows not sealed yet",
        err=True,
    )
    for each in found.dropped:
        click.echo(
            f"{each.month:%Y-%m} was dropped with {each.rows} rows, as seal {each.seal_no} says",
            err=True,
        )
    if len(found.faults) == FAULTS_MAX:
        click.echo("stopped there; more may be wrong", err=True)
