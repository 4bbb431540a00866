"""`penstock replay`: send old events to a subscription again; a crash does not end the job."""

import asyncio
import sys
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import get_args

import click

from penstock.base.errors import InvalidInput
from penstock.console.database import ask, data_dir_option, operator
from penstock.console.exits import Exit
from penstock.console.output import (
    confirm,
    json_option,
    print_json,
    print_record,
    print_rows,
    progress_bar,
    without,
)
from penstock.console.values import ID_MAX, LIMIT, parse_when
from penstock.domains.webhooks.commands.subscription.typed_options import (
    in_typed_words,
    parse_rate,
    parse_types,
    subscription_argument,
    utf8,
)
from penstock.domains.webhooks.replay import (
    BEGINNING,
    EventReplay,
    NewReplay,
    ReplayState,
    Which,
    count_replay,
    list_replays,
    read_replay,
    set_replay,
    start_replay,
)
from penstock.domains.webhooks.wire import to_wire_dry_run, to_wire_replay
from penstock.postgres.pool import Connection

RATE_MIN, RATE_MAX = 0.001, 100_000  # As over REST.
LOOK_INTERVAL = timedelta(milliseconds=200)  # Often enough for a bar that moves.
PATIENCE = timedelta(seconds=10)  # A worker that runs begins within a second.
OVER: set[ReplayState] = {"finished", "cancelled"}

REPLAY_ID = click.IntRange(1, ID_MAX)
replay_argument = click.argument("replay_id", metavar="ID", type=REPLAY_ID)
wait_option = click.option(
    "--wait", is_flag=True, help="Show its progress until it ends; exit 1 if it was cancelled."
)


@click.group()
def replay() -> None:
    """Send old events to a subscription again, or for the first time.

    To give dead items of any lane another set of attempts, see: penstock dead replay
    """


@replay.command()
@subscription_argument
@click.option(
    "--which",
    type=click.Choice(get_args(Which)),
    default="missing",
    show_default=True,
    help="Events never sent to it, failed ones, delivered ones, or all that it wants.",
)
@click.option(
    "--type",
    "event_types",
    multiple=True,
    metavar="EVENT_TYPE",
    callback=utf8,
    help="Only of this type, such as order.*; may be given again.",
)
@click.option(
    "--from", "from_", metavar="INSTANT", help="Accepted then or later; -1h is an hour ago."
)
@click.option("--until", metavar="INSTANT", help="Accepted before.  [now]")
@click.option("--rate", metavar="N", help="Events per second.  [as fast as the limits allow]")
@click.option("--dry-run", is_flag=True, help="Only count them.")
@click.option("--yes", is_flag=True, help="Do not ask; required where no terminal is attached.")
@wait_option
@data_dir_option
@json_option
def start(  # noqa: PLR0913  One parameter per option.
    *,
    subscription_id: str,
    which: Which,
    event_types: tuple[str, ...],
    from_: str | None,
    until: str | None,
    rate: str | None,
    dry_run: bool,
    yes: bool,
    wait: bool,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Start a replay to the subscription ID; counts its events and asks first.

    It runs by itself, wherever a worker runs, and can be paused and cancelled.
    """
    asked = NewReplay(
        subscription_id=subscription_id,
        which=which,
        event_types=parse_types(event_types) or None,
        from_at=parse_when(from_, field="--from") or BEGINNING,
        until_at=parse_when(until, field="--until"),
        rate=None if rate is None else _rate(rate),
    )
    with in_typed_words():
        if dry_run or not yes:
            counted = ask(data_dir, lambda db: count_replay(db, asked))
            if dry_run:
                _print_count(asked, counted, as_json=as_json)
                return
            if counted:
                confirm(f"Send {counted:,} events to subscription {subscription_id}?")
            elif not as_json:
                click.echo("there is nothing to replay")
                return
        job = ask(data_dir, lambda db: start_replay(db, asked, who=operator()))
    if wait:
        _wait(job, data_dir, as_json=as_json)
    else:
        _print(job, as_json=as_json)


@replay.command("list")
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="How many.")
@click.option("--after", type=REPLAY_ID, metavar="ID", help="Continue after this replay.")
@data_dir_option
@json_option
def list_(*, limit: int, after: int | None, data_dir: Path | None, as_json: bool) -> None:
    """List replays of events, the newest first."""
    found = ask(data_dir, lambda db: list_replays(db, before=after, limit=limit))
    if as_json:
        for each in found:
            print_json(to_wire_replay(each))
        return
    left_out = ["event_types", "from_at", "until_at", "created_by"]
    rows = [without(asdict(each), left_out) for each in found]
    print_rows(rows, as_json=False, none="there are no replays here")


@replay.command()
@replay_argument
@wait_option
@data_dir_option
@json_option
def show(*, replay_id: int, wait: bool, data_dir: Path | None, as_json: bool) -> None:
    """Show a replay and its progress."""
    job = ask(data_dir, lambda db: read_replay(db, replay_id))
    if wait:
        _wait(job, data_dir, as_json=as_json)
    else:
        _print(job, as_json=as_json)


@replay.command()
@replay_argument
@data_dir_option
@json_option
def pause(*, replay_id: int, data_dir: Path | None, as_json: bool) -> None:
    """Pause a replay; deliveries that it has created already go on."""
    job = ask(data_dir, lambda db: set_replay(db, replay_id, "paused", who=operator()))
    _print(job, as_json=as_json)


@replay.command()
@replay_argument
@data_dir_option
@json_option
def resume(*, replay_id: int, data_dir: Path | None, as_json: bool) -> None:
    """Resume a paused replay where it stopped."""
    job = ask(data_dir, lambda db: set_replay(db, replay_id, "running", who=operator()))
    _print(job, as_json=as_json)


@replay.command()
@replay_argument
@data_dir_option
@json_option
def cancel(*, replay_id: int, data_dir: Path | None, as_json: bool) -> None:
    """Cancel a replay; deliveries that it has created already go on."""
    job = ask(data_dir, lambda db: set_replay(db, replay_id, "cancelled", who=operator()))
    _print(job, as_json=as_json)


def _print_count(asked: NewReplay, counted: int, *, as_json: bool) -> None:
    if as_json:
        print_json(to_wire_dry_run(asked, counted))
    else:
        click.echo(f"{counted:,} events would be sent")


def _rate(text: str) -> float | None:
    rate = parse_rate(text, field="--rate")
    if rate is not None and not RATE_MIN <= rate <= RATE_MAX:
        raise InvalidInput("--rate", f"must be from {RATE_MIN} to {RATE_MAX:,} per second")
    return rate


def _print(job: EventReplay, *, as_json: bool) -> None:
    if as_json:
        print_json(to_wire_replay(job))
    else:
        print_record(asdict(job), as_json=False)


def _wait(job: EventReplay, data_dir: Path | None, *, as_json: bool) -> None:
    """Show how a replay goes until it is over; one that was cancelled has failed."""
    ended = ask(data_dir, lambda db: _watch(db, job))
    if as_json:
        print_json(to_wire_replay(ended))
    else:
        click.echo(
            f"replay {ended.id} is {ended.state}: {ended.replayed:,} events are on their way"
        )
    if ended.state != "finished":
        sys.exit(Exit.FAILED)


async def _watch(db: Connection, job: EventReplay) -> EventReplay:
    moved_at, is_warned = monotonic(), False
    with progress_bar() as progress:
        task = progress.add_task("replay", total=job.counted)
        while job.state not in OVER:
            await asyncio.sleep(LOOK_INTERVAL.total_seconds())
            before, job = job, await read_replay(db, job.id)
            word = "paused" if job.state == "paused" else "replay"
            progress.update(task, completed=job.replayed, description=word)
            if job.replayed != before.replayed or job.state == "paused":
                moved_at = monotonic()
            if not is_warned and monotonic() - moved_at > PATIENCE.total_seconds():
                is_warned = True
                progress.console.print("nothing moves: is a worker running?")
    return job
