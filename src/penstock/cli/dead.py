"""`penstock dead`: list dead letters and replay them."""

import asyncio
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import click

from penstock.console.database import ask, data_dir_option, operator
from penstock.console.output import confirm, json_option, print_json, print_rows, progress_bar
from penstock.console.values import ITEM_ID, LIMIT
from penstock.kernel.inspect import list_dead
from penstock.kernel.item import ItemId
from penstock.kernel.replay import (
    DeadReplay,
    continue_replays,
    count_dead,
    read_replay,
    start_replay,
)
from penstock.postgres.pool import Connection

PAUSE = timedelta(milliseconds=200)  # Between two looks while a sweeper runs the job.


@click.group()
def dead() -> None:
    """List dead letters and replay them."""


@dead.command("list")
@click.option("--lane", help="Only of this lane.")
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="How many.")
@click.option("--after", type=ITEM_ID, metavar="ID", help="Continue after this item.")
@data_dir_option
@json_option
def list_(
    *, lane: str | None, limit: int, after: int | None, data_dir: Path | None, as_json: bool
) -> None:
    """List dead letters, the oldest first."""
    start = None if after is None else ItemId(after)
    found = ask(data_dir, lambda db: list_dead(db, lane=lane, after=start, limit=limit))
    rows = [asdict(each) for each in found]
    print_rows(rows, as_json=as_json, none="there are no dead letters here")


@dead.command()
@click.argument("lane")
@click.option("--reason", help="Only those with exactly this reason.")
@click.option("--yes", is_flag=True, help="Do not ask; required where no terminal is attached.")
@click.option("--no-wait", is_flag=True, help="Return immediately; the sweepers run the replay.")
@data_dir_option
@json_option
def replay(
    *,
    lane: str,
    reason: str | None,
    yes: bool,
    no_wait: bool,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Give all dead items of a lane another set of attempts, after a confirmation."""
    count = ask(data_dir, lambda db: count_dead(db, lane, reason=reason))
    if count and not yes:
        confirm(f"Replay {count} dead items of lane {lane}?")

    async def run(db: Connection) -> DeadReplay:
        job = await start_replay(db, lane, who=operator(), reason=reason)
        return job if no_wait else await _run_replay(db, job)

    if count == 0 and not as_json:
        click.echo("there is nothing to replay")
        return
    job = ask(data_dir, run)
    if as_json:
        print_json(job)
    elif no_wait:
        click.echo(f"replay {job.replay_id} of {job.counted} items has started")
    else:
        click.echo(f"replayed {job.replayed} items")


async def _run_replay(db: Connection, job: DeadReplay) -> DeadReplay:
    """Run steps of the replay until it is finished: perhaps no sweeper is running."""
    with progress_bar() as progress:
        task = progress.add_task("replay", total=job.counted)
        while True:
            moved = await continue_replays(db)
            now = await read_replay(db, job.replay_id)
            progress.update(task, completed=now.replayed)
            if now.finished_at is not None:
                return now
            if not moved:
                await asyncio.sleep(PAUSE.total_seconds())
