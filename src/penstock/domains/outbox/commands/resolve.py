"""`penstock outbox resolve`."""

from pathlib import Path
from uuid import UUID

import click

from penstock.console.database import ask, data_dir_option, operator
from penstock.console.output import confirm, json_option, print_record
from penstock.console.values import parse_when
from penstock.domains.outbox.commands.announcing import find_archive
from penstock.domains.outbox.reconcile.resolve import (
    Decision,
    Resolution,
    Resolved,
    Resolver,
    UnknownFilter,
    count_unknown,
)
from penstock.postgres.pool import Connection


@click.command()
@click.argument("outbox_id", type=click.UUID, metavar="[OUTBOX_ID]", required=False)
@click.option(
    "--as",
    "resolution",
    type=click.Choice(["paid", "failed", "again"]),
    required=True,
    help="paid: it left; failed: it did not and will not; again: it did not, send it again.",
)
@click.option("--reason", required=True, help="Why; kept in the archive and the audit.")
@click.option("--reference", help="With --as paid: the reference of the rail.")
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
    resolution: Resolution,
    reason: str,
    reference: str | None,
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
    decision = Decision(resolution=resolution, who=operator(), reason=reason, reference=reference)
    resolver = Resolver(archive=find_archive())
    if outbox_id is not None:
        if dry_run or rail_type or participant or before:
            raise click.UsageError("--dry-run and the filters are only for --all")
        ask(data_dir, lambda db: resolver.resolve(db, outbox_id, decision))
        print_record({"outbox_id": outbox_id, "resolution": resolution}, as_json=as_json)
        return
    only = UnknownFilter(
        rail_type=rail_type,
        participant_id=participant,
        before=parse_when(before, field="before"),
    )
    matched = ask(data_dir, lambda db: count_unknown(db, only))
    if dry_run or not matched:
        print_record({"matched": matched}, as_json=as_json)
        return
    if not yes:
        confirm(f"Resolve {matched} instructions as {resolution}?")
    done = ask(data_dir, lambda db: _resolve_all(db, resolver, only, decision=decision))
    record = {"matched": matched, "changed": done.changed, "unchanged": done.unchanged}
    print_record(record, as_json=as_json)


async def _resolve_all(
    db: Connection, resolver: Resolver, only: UnknownFilter, *, decision: Decision
) -> Resolved:
    """Go through all pages; each is committed by itself."""
    changed = unchanged = after = 0
    while True:
        page = await resolver.resolve_page(db, only, decision, after=after)
        changed, unchanged = changed + page.changed, unchanged + page.unchanged
        if page.last_id is None:
            return Resolved(changed=changed, unchanged=unchanged, last_id=None)
        after = page.last_id
