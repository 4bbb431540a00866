"""`penstock slots reflow`: lay a pool's future slots out anew; first it says what that would do."""

from pathlib import Path

import click

from penstock.cli.output import confirm, json_option
from penstock.cli.place import ask, data_dir_option, operator
from penstock.cli.slots.words import config_option, in_typed_words, print_told
from penstock.cli.values import parse_instant
from penstock.domains.slots.reflow import Reflow
from penstock.domains.slots.reflow import reflow as lay_out_anew
from penstock.domains.slots.slot import BEGINNING
from penstock.domains.slots.tell import tell_reflow
from penstock.postgres.pool import Connection


@click.command()
@config_option
@click.option("--freeze-until", metavar="INSTANT", help="Slots before stay; +5m is from now.")
@click.option("--dry-run", is_flag=True, help="Only say what it would do.")
@click.option("--yes", is_flag=True, help="Do not ask.")
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
    """Move future slots to where the present rule has them, after it was changed.

    Says first what that would do, and asks. They keep their order; no event gets a slot before the
    instant that it asked for. Every move is recorded.
    """
    frozen = None if freeze_until is None else parse_instant(freeze_until, field="--freeze-until")

    def run(*, is_dry_run: bool) -> Reflow:
        async def work(db: Connection) -> Reflow:
            return await lay_out_anew(
                db, pool, freeze_until=frozen or BEGINNING, who=operator(), is_dry_run=is_dry_run
            )

        with in_typed_words():
            done = ask(data_dir, work)
        if is_dry_run or as_json:
            print_told(tell_reflow(pool, done, is_dry_run=is_dry_run), as_json=as_json)
        return done

    would = run(is_dry_run=True)
    if dry_run:
        return
    if would.moved == 0:
        click.echo("nothing has to move", err=True)
        return
    if not yes:
        confirm(f"Move {would.moved:,} slots of pool {pool}?")
    done = run(is_dry_run=False)
    if not as_json:
        click.echo(f"\n{_said(done)}")


def _said(done: Reflow) -> str:
    if done.reflow_id is None:
        return "nothing had to move any more"
    return f"moved {done.moved:,} slots; list them: penstock slots moves --reflow {done.reflow_id}"
