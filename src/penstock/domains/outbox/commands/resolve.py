"""`penstock outbox resolve`."""

from pathlib import Path
from uuid import UUID

import click

from penstock.console.database import ask, data_dir_option, operator
from penstock.console.output import confirm, json_option, print_record
from penstock.console.values import parse_when
from penstock.domains.outbox.commands.archive import find_archive
from penstock.domains.outbox.reconcile.resolve import (
    Decision,
    InstructionResolution,
    Resolver,
    UnknownFilter,
    check_for_many,
    list_unknown,
)


@click.command()
@click.argument("outbox_id", type=click.UUID, metavar="[OUTBOX_ID]", required=False)
@click.option(
    "--as",
    "resolution",
    type=click.Choice(["paid", "failed", "again"]),
    required=True,
    help="paid: it left, --reference is needed; failed: it did not and will not; again: it did "
    "not, send it again.",
)
@click.option("--reason", required=True, help="Why; kept in the archive and the audit.")
@click.option("--reference", help="With --as paid: the reference of the rail.")
@click.option(
    "--attempt",
    type=click.IntRange(min=1),
    help="The attempt that you looked at; refused if there is a later one.",
)
@click.option("--all", "is_all", is_flag=True, help="Instead of an ID: all in doubt that match.")
@click.option("--rail", "rail_type", help="With --all: only those of this rail.")
@click.option("--participant", help="With --all: only those of this participant.")
@click.option(
    "--before", metavar="INSTANT", help="With --all: only those held before; -1h is that long ago."
)
@click.option("--dry-run", is_flag=True, help="With --all: only count them.")
@click.option("--yes", is_flag=True, help="Do not ask; required without a terminal.")
@data_dir_option
@json_option
def resolve(  # noqa: PLR0913  One argument per option.
    *,
    outbox_id: UUID | None,
    resolution: InstructionResolution,
    reason: str,
    reference: str | None,
    attempt: int | None,
    is_all: bool,
    rail_type: str | None,
    participant: str | None,
    before: str | None,
    dry_run: bool,
    yes: bool,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Decide about an instruction that may have been paid, once you have asked the bank."""
    if (outbox_id is None) != is_all:
        raise click.UsageError("give either an ID or --all")
    if is_all:
        check_for_many(resolution)
    decision = Decision(resolution=resolution, who=operator(), reason=reason, reference=reference)
    resolver = Resolver(archive=find_archive())
    if outbox_id is not None:
        if dry_run or rail_type or participant or before:
            raise click.UsageError("--dry-run and the filters are only for --all")
        ask(data_dir, lambda db: resolver.resolve(db, outbox_id, decision, attempt=attempt))
        print_record({"outbox_id": outbox_id, "resolution": resolution}, as_json=as_json)
        return
    if attempt is not None:
        raise click.UsageError("--attempt is only for an ID")
    only = UnknownFilter(
        rail_type=rail_type,
        participant_id=participant,
        before=parse_when(before, field="before"),
    )
    # Listed, not only counted: what comes to doubt while the person decides is left alone.
    doubts = ask(data_dir, lambda db: list_unknown(db, only))
    if dry_run or not doubts:
        print_record({"matched": len(doubts)}, as_json=as_json)
        return
    if not yes:
        confirm(f"Resolve {len(doubts)} instructions as {resolution}?")
    done = ask(data_dir, lambda db: resolver.resolve_listed(db, doubts, decision))
    record = {"matched": len(doubts), "changed": done.changed, "unchanged": done.unchanged}
    print_record(record, as_json=as_json)
