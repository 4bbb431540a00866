"""`penstock outbox stop`, `suspend`, `hold` and the like: what holds instructions back."""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import click

from penstock.console.database import ask, data_dir_option, operator
from penstock.console.output import confirm, json_option, print_record, print_rows
from penstock.console.values import LIMIT, parse_when
from penstock.domains.outbox.commands.archive import find_archive
from penstock.domains.outbox.control import operate, suspension, switch
from penstock.domains.outbox.control.control_scope import ControlScope, find_notice
from penstock.domains.outbox.control.decide_many import BulkVerb, Filter, count_many, decide_page
from penstock.domains.outbox.control.gap import list_gaps
from penstock.kernel.operate import check_decision
from penstock.postgres.pool import Connection

Command = TypeVar("Command", bound=Callable[..., None])

reason_option = click.option("--reason", required=True, help="Why; kept in the audit.")


def scope_options(command: Command) -> Command:
    """Add the options that say what a command is about: everything, a rail or a participant."""
    options = (
        click.option("--all", "is_all", is_flag=True, help="Everything."),
        click.option("--rail", help="One rail."),
        click.option("--participant", help="One participant."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def read_scope(
    *, is_all: bool, rail: str | None, participant: str | None
) -> tuple[ControlScope, str | None]:
    """Return the scope and the name that the options give; exactly one of them is allowed."""
    if [is_all, rail is not None, participant is not None].count(True) != 1:
        raise click.UsageError("give one of --all, --rail and --participant")
    if is_all:
        return "all", None
    return ("rail", rail) if rail is not None else ("participant", participant)


def echo_notice(notice: str | None) -> None:
    """Warn that a name may be mistyped."""
    if notice is not None:
        click.echo(notice, err=True)


@click.command()
@scope_options
@reason_option
@data_dir_option
def stop(
    *,
    is_all: bool,
    rail: str | None,
    participant: str | None,
    reason: str,
    data_dir: Path | None,
) -> None:
    """Stop instructions for the next call; they wait in their place."""
    scope, name = read_scope(is_all=is_all, rail=rail, participant=participant)

    async def stop_and_look(db: Connection) -> tuple[switch.Switch, str | None]:
        made = await switch.stop(db, scope, name, who=operator(), reason=reason)
        return made, await find_notice(db, made.scope, made.name)

    stopped, notice = ask(data_dir, stop_and_look)
    click.echo(f"{stopped.scope} {stopped.name} is stopped", err=True)
    echo_notice(notice)


@click.command()
@scope_options
@reason_option
@data_dir_option
def start(
    *,
    is_all: bool,
    rail: str | None,
    participant: str | None,
    reason: str,
    data_dir: Path | None,
) -> None:
    """Start again what was stopped; it leaves within 30 seconds."""
    scope, name = read_scope(is_all=is_all, rail=rail, participant=participant)
    ask(data_dir, lambda db: switch.start(db, scope, name, who=operator(), reason=reason))
    click.echo("started; another switch may still stop a part of it", err=True)


@click.command()
@data_dir_option
@json_option
def switches(*, data_dir: Path | None, as_json: bool) -> None:
    """List what is stopped."""
    rows = [asdict(each) for each in ask(data_dir, switch.list_switches)]
    print_rows(rows, as_json=as_json, none="nothing is stopped")


@click.command()
@click.argument("participant_id", metavar="PARTICIPANT")
@reason_option
@data_dir_option
def suspend(*, participant_id: str, reason: str, data_dir: Path | None) -> None:
    """Suspend a participant until it is resumed."""

    async def suspend_and_look(db: Connection) -> str | None:
        await suspension.suspend(db, participant_id, who=operator(), reason=reason)
        return await find_notice(db, "participant", participant_id)

    notice = ask(data_dir, suspend_and_look)
    click.echo(f"{participant_id} is suspended", err=True)
    echo_notice(notice)


@click.command()
@click.argument("participant_id", metavar="PARTICIPANT")
@reason_option
@data_dir_option
def resume(*, participant_id: str, reason: str, data_dir: Path | None) -> None:
    """Resume a participant; a failed instruction that suspended it is passed over."""
    decide = partial(suspension.resume, archive=find_archive(), who=operator(), reason=reason)
    ask(data_dir, lambda db: decide(db, participant_id))
    click.echo(f"{participant_id} is resumed", err=True)


@click.command()
@click.option("--limit", type=LIMIT, default=100, show_default=True, help="How many.")
@click.option("--after", default="", help="Continue after this participant.")
@data_dir_option
@json_option
def suspensions(*, limit: int, after: str, data_dir: Path | None, as_json: bool) -> None:
    """List suspended participants."""
    found = ask(data_dir, lambda db: suspension.list_suspensions(db, after=after, limit=limit))
    rows = [asdict(each) for each in found]
    print_rows(rows, as_json=as_json, none="no participant is suspended")


def decision_options(command: Command) -> Command:
    """Add the options of a decision about one instruction, or about many."""
    options = (
        click.argument("outbox_id", type=click.UUID, metavar="[ID]", required=False),
        reason_option,
        click.option("--many", is_flag=True, help="Instead of an ID: all that match."),
        click.option("--participant", help="With --many: only of this participant."),
        click.option("--with-reason", help="With --many: only those held for exactly this."),
        click.option(
            "--before",
            metavar="INSTANT",
            help="With --many: only those held or due before; -1h is that long ago.",
        ),
        click.option("--dry-run", is_flag=True, help="With --many: only count them."),
        click.option("--yes", is_flag=True, help="Do not ask; required without a terminal."),
        data_dir_option,
        json_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@decision_options
def hold(*, outbox_id: UUID | None, **given: Any) -> None:
    """Hold the head of a participant, or all heads that match; followers wait."""
    _decide("hold", outbox_id, **given)


@click.command()
@decision_options
def release(*, outbox_id: UUID | None, **given: Any) -> None:
    """Try a held instruction again, or a failed one that blocks, or all held ones that match."""
    _decide("release", outbox_id, **given)


@click.command()
@click.argument("outbox_id", type=click.UUID, metavar="ID")
@reason_option
@data_dir_option
def skip(*, outbox_id: UUID, reason: str, data_dir: Path | None) -> None:
    """End the head of a participant as failed, so that the next one leaves; a gap is recorded."""
    decide = partial(operate.skip, archive=find_archive(), who=operator(), reason=reason)
    ask(data_dir, lambda db: decide(db, outbox_id))
    click.echo(f"{outbox_id} is skipped", err=True)


@click.command()
@click.option("--participant", help="Only of this participant.")
@click.option("--limit", type=LIMIT, default=100, show_default=True, help="How many.")
@click.option("--after", type=int, default=0, help="Continue after this gap_id.")
@data_dir_option
@json_option
def gaps(
    *, participant: str | None, limit: int, after: int, data_dir: Path | None, as_json: bool
) -> None:
    """List numbers that operators passed over, or that producers took and did not use."""
    found = ask(
        data_dir,
        lambda db: list_gaps(db, participant_id=participant, after=after, limit=limit),
    )
    print_rows([asdict(each) for each in found], as_json=as_json, none="there are no gaps")


COMMANDS = (stop, start, switches, suspend, resume, suspensions, hold, release, skip, gaps)


def _decide(
    verb: BulkVerb,
    outbox_id: UUID | None,
    *,
    reason: str,
    many: bool,
    dry_run: bool,
    yes: bool,
    data_dir: Path | None,
    as_json: bool,
    **chosen: str | None,
) -> None:
    check_decision(who=operator(), reason=reason)
    if (outbox_id is None) != many:
        raise click.UsageError("give either an ID or --many")
    if outbox_id is not None:
        if dry_run or any(each is not None for each in chosen.values()):
            raise click.UsageError("a filter and --dry-run are only for --many")
        one = operate.hold if verb == "hold" else partial(operate.release, archive=find_archive())
        ask(data_dir, lambda db: one(db, outbox_id, who=operator(), reason=reason))
        print_record({"outbox_id": outbox_id, "decided": verb}, as_json=as_json)
        return
    only = Filter(
        participant_id=chosen["participant"],
        with_reason=chosen["with_reason"],
        before=parse_when(chosen["before"], field="before"),
    )
    matched = ask(data_dir, lambda db: count_many(db, verb, only))
    if dry_run or matched == 0:
        print_record({"matched": matched}, as_json=as_json)
        return
    if not yes:
        confirm(f"{verb.capitalize()} {matched} instructions?")
    decide = partial(
        decide_page, verb=verb, only=only, archive=find_archive(), who=operator(), reason=reason
    )
    print_record({"matched": matched} | ask(data_dir, partial(_all, decide)), as_json=as_json)


async def _all(decide: Callable[..., Any], db: Connection) -> dict[str, int]:
    """Go through all pages; each is committed by itself."""
    changed = unchanged = 0
    after = None
    while True:
        page = await decide(db, after=after)
        changed, unchanged = changed + page.changed, unchanged + page.unchanged
        after = page.last_id
        if after is None:
            return {"changed": changed, "unchanged": unchanged}
