"""`penstock outbox approve`, `reject` and `approvals`. A decision needs the key of a person."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Protocol
from uuid import UUID

import click

from penstock.console.database import ask, data_dir_option
from penstock.console.output import json_option, print_record, print_rows, without
from penstock.console.values import LIMIT
from penstock.domains.outbox.audit.archive import Archive
from penstock.domains.outbox.commands.archive import find_archive
from penstock.domains.outbox.control.approval import Approval, list_waiting
from penstock.domains.outbox.control.approval import approve as approve_one
from penstock.domains.outbox.control.approval import reject as reject_one
from penstock.kernel.api_keys import authenticate
from penstock.kernel.errors import Forbidden
from penstock.postgres.pool import Connection


class _Decide(Protocol):
    def __call__(
        self, db: Connection, outbox_id: UUID, *, archive: Archive, who: str, reason: str
    ) -> Awaitable[Approval]: ...


def _decision_options(command: Callable[..., None]) -> Callable[..., None]:
    options = (
        click.argument("outbox_id", type=click.UUID, metavar="ID"),
        click.option("--reason", required=True, help="Why; kept with the decision."),
        click.option(
            "--key",
            envvar="PENSTOCK_KEY",
            show_envvar=True,
            required=True,
            help="Your API key with the scope approve.",
        ),
        data_dir_option,
        json_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@_decision_options
def approve(
    *, outbox_id: UUID, reason: str, key: str, data_dir: Path | None, as_json: bool
) -> None:
    """Approve an instruction that waits for a second person."""
    _decide(approve_one, outbox_id, reason=reason, key=key, data_dir=data_dir, as_json=as_json)


@click.command()
@_decision_options
def reject(*, outbox_id: UUID, reason: str, key: str, data_dir: Path | None, as_json: bool) -> None:
    """Reject an instruction that waits for a second person; it fails."""
    _decide(reject_one, outbox_id, reason=reason, key=key, data_dir=data_dir, as_json=as_json)


@click.command()
@click.option("--limit", type=LIMIT, default=100, show_default=True, help="How many.")
@data_dir_option
@json_option
def approvals(*, limit: int, data_dir: Path | None, as_json: bool) -> None:
    """List instructions that wait for a second person, the oldest first."""
    found = ask(data_dir, lambda db: list_waiting(db, limit=limit))
    rows = [without(asdict(each), ["item_id"]) for each in found]
    print_rows(rows, as_json=as_json, none="nothing waits for an approval")


COMMANDS = (approve, reject, approvals)


def _decide(
    decide: _Decide,
    outbox_id: UUID,
    *,
    reason: str,
    key: str,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    archive = find_archive()

    async def run(db: Connection) -> Approval:
        # Access to the database is not enough: a decision is made by the person who has the key.
        person = await authenticate(db, key)
        if not person.allows("approve"):
            raise Forbidden("approve")
        return await decide(db, outbox_id, archive=archive, who=person.caller, reason=reason)

    print_record(asdict(ask(data_dir, run)), as_json=as_json)
