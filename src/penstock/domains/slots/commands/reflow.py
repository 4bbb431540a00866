"""`penstock slots reflow`: reassign a pool's future slots, after a dry run and a confirmation."""

from pathlib import Path

import click

from penstock.calendar.instant import EPOCH
from penstock.console.database import ask, data_dir_option, operator
from penstock.console.output import confirm, json_option
from penstock.console.values import parse_instant
from penstock.domains.slots.commands.typed_options import config_option, naming_options, print_wire
from penstock.domains.slots.reflow import Reflow
from penstock.domains.slots.reflow import reflow as reflow_pool
from penstock.domains.slots.wire import to_wire_reflow
from penstock.postgres.pool import Connection

NO_MOVES = "no slots to move"


@click.command()
@config_option
@click.option(
    "--freeze-until", metavar="INSTANT", help="Keep slots before it; +5m is from now.  [now]"
)
@click.option("--dry-run", is_flag=True, help="Only print what would move.")
@click.option("--yes", is_flag=True, help="Do not ask; required where no terminal is attached.")
@data_dir_option
@json_option
def reflow(
    *,
    pool: str,
    freeze_until: str | None,
    dry_run: bool,
    yes: bool,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Reassign future slots under the present rule, after it was changed.

    Prints first what would move and asks for confirmation, unless --yes is given. Slots keep their
    order, and none moves before its requested time. Every move is recorded.
    """
    frozen = None if freeze_until is None else parse_instant(freeze_until, field="--freeze-until")

    def run(*, is_dry_run: bool) -> Reflow:
        async def work(db: Connection) -> Reflow:
            return await reflow_pool(
                db, pool, freeze_until=frozen or EPOCH, who=operator(), is_dry_run=is_dry_run
            )

        with naming_options():
            done = ask(data_dir, work)
        print_wire(to_wire_reflow(pool, done, is_dry_run=is_dry_run), as_json=as_json)
        return done

    if dry_run or not yes:
        would = run(is_dry_run=True)
        if dry_run:
            return
        if would.moved == 0:
            click.echo(NO_MOVES, err=True)
            return
        confirm(f"Move {would.moved:,} slots of pool {pool}?")
    done = run(is_dry_run=False)
    if done.reflow_id is None:
        click.echo(NO_MOVES, err=True)
    elif not as_json:
        click.echo(f"list the moves: penstock slots moves --reflow {done.reflow_id}")
