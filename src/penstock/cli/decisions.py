"""`penstock item retry`, `cancel` and the other verbs that decide about one item, or about many."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import click
import msgspec

from penstock.console.database import ask, data_dir_option, operator
from penstock.console.output import confirm, json_option, print_record, progress_bar
from penstock.console.values import ITEM_ID, parse_instant, parse_when
from penstock.kernel import operate
from penstock.kernel.errors import UnknownItem
from penstock.kernel.guard import Verb
from penstock.kernel.inspect import read_item
from penstock.kernel.item import ItemId
from penstock.kernel.select import (
    Decide,
    Decided,
    SelectableState,
    Selection,
    count_selected,
    decide_page,
)
from penstock.postgres.pool import Connection

Command = TypeVar("Command", bound=Callable[..., None])

why_option = click.option("--reason", help="Why; kept in the audit.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What the command line says about which items: one by its id, or many by a filter."""

    item_id: int | None
    lane: str | None
    with_reason: str | None
    order_key: str | None
    before: str | None
    dry_run: bool
    yes: bool
    data_dir: Path | None
    as_json: bool


def decision_options(command: Command) -> Command:
    """Add the options that all decisions share."""
    options = (
        click.argument("item_id", type=ITEM_ID, metavar="[ID]", required=False),
        click.option(
            "--reason", required=True, callback=_checked_reason, help="Why; kept in the audit."
        ),
        click.option("--lane", help="Instead of an ID: all items of this lane that match."),
        click.option("--with-reason", help="With --lane: only those with exactly this reason."),
        click.option("--order-key", help="With --lane: only those with this order key."),
        click.option(
            "--before",
            metavar="INSTANT",
            help="With --lane: only those held, dead or due before; -1h is that long ago.",
        ),
        click.option("--dry-run", is_flag=True, help="With --lane: only count them."),
        click.option("--yes", is_flag=True, help="Do not ask; required without a terminal."),
        data_dir_option,
        json_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


def _checked_reason(_context: click.Context, _option: click.Parameter, reason: str) -> str:
    """Refuse a reason that the decision would refuse, also in a dry run."""
    operate.check_decision(who=operator(), reason=reason)
    return reason


@click.command()
@click.argument("item_id", type=ITEM_ID, metavar="ID")
@why_option
@data_dir_option
@json_option
def retry(*, item_id: int, reason: str | None, data_dir: Path | None, as_json: bool) -> None:
    """Give a dead item another set of attempts, from now on."""
    decide = partial(operate.retry, who=operator(), reason=reason)
    _change_one(data_dir, item_id, decide, as_json=as_json)


@click.command()
@click.argument("item_id", type=ITEM_ID, metavar="ID")
@why_option
@data_dir_option
@json_option
def cancel(*, item_id: int, reason: str | None, data_dir: Path | None, as_json: bool) -> None:
    """Cancel an item, unless a worker holds it or it is done."""
    decide = partial(operate.cancel, who=operator(), reason=reason)
    _change_one(data_dir, item_id, decide, as_json=as_json)


@click.command()
@click.argument("item_id", type=ITEM_ID, metavar="ID")
@click.argument("due_at", metavar="INSTANT")
@why_option
@data_dir_option
@json_option
def reschedule(
    *, item_id: int, due_at: str, reason: str | None, data_dir: Path | None, as_json: bool
) -> None:
    """Give a waiting item another due instant: 2030-01-31T16:00:00Z, or +5m from now."""
    instant = parse_instant(due_at, field="due_at")
    _change_one(
        data_dir,
        item_id,
        partial(operate.reschedule, due_at=instant, who=operator(), reason=reason),
        as_json=as_json,
    )


@click.command()
@decision_options
def hold(*, reason: str, **given: Any) -> None:
    """Hold a waiting item until it is released, resolved or cancelled."""
    decide = partial(operate.hold, who=operator(), reason=reason)
    _decide("hold", Chosen(**given), state="waiting", decide=decide)


@click.command()
@decision_options
def release(*, reason: str, **given: Any) -> None:
    """Try a held item again, with another set of attempts."""
    decide = partial(operate.release, who=operator(), reason=reason)
    _decide("release", Chosen(**given), state="held", decide=decide)


@click.command()
@decision_options
@click.option(
    "--as", "outcome", type=click.Choice(["done", "dead"]), required=True, help="How it ended."
)
@click.option("--result", metavar="JSON", help="With --as done: what came of it.")
def resolve(
    *, reason: str, outcome: Literal["done", "dead"], result: str | None, **given: Any
) -> None:
    """End a held item as done or as dead, once you have found out what happened."""
    given_result = None if result is None else _json(result)
    operate.check_resolution(outcome, given_result)
    decide = partial(
        operate.resolve, outcome=outcome, who=operator(), reason=reason, result=given_result
    )
    _decide("resolve", Chosen(**given), state="held", decide=decide)


@click.command()
@decision_options
@click.option(
    "--state",
    type=click.Choice(["dead", "held", "waiting"]),
    help="With --lane: heads in this state.  [dead]",
)
def skip(*, reason: str, state: SelectableState | None, **given: Any) -> None:
    """End the head of an order key as dead, so that the next item follows."""
    chosen = Chosen(**given)
    if chosen.item_id is not None and state is not None:
        raise _only_for_many("--state")
    decide = partial(operate.skip, who=operator(), reason=reason)
    _decide("skip", chosen, state=state or "dead", decide=decide)


DECISIONS = (retry, cancel, reschedule, hold, release, resolve, skip)


def _change_one(data_dir: Path | None, item_id: int, decide: Decide, *, as_json: bool) -> None:
    """Change one item and print its new state."""

    async def change(db: Connection) -> dict[str, Any]:
        await decide(db, ItemId(item_id))
        found = await read_item(db, ItemId(item_id))
        if found is None:
            raise UnknownItem(item_id)
        return {"id": found.id, "lane": found.lane, "state": found.state, "due_at": found.due_at}

    print_record(ask(data_dir, change), as_json=as_json)


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as refused:
        raise click.BadParameter(f"is not JSON: {refused}", param_hint="--result") from refused


def _decide(verb: Verb, chosen: Chosen, *, state: SelectableState, decide: Decide) -> None:
    if (chosen.item_id is None) == (chosen.lane is None):
        raise click.UsageError("give either an ID or --lane")
    if chosen.item_id is not None:
        _refuse_filter(chosen)
        _change_one(chosen.data_dir, chosen.item_id, decide, as_json=chosen.as_json)
        return
    assert chosen.lane is not None, "checked above"
    selection = Selection(
        lane=chosen.lane,
        state=state,
        reason=chosen.with_reason,
        order_key=chosen.order_key,
        before=parse_when(chosen.before, field="before"),
        only_heads=verb == "skip",
    )
    _decide_many(verb, chosen, selection, decide=decide)


def _refuse_filter(chosen: Chosen) -> None:
    """Refuse what chooses among many beside an ID: to ignore --dry-run would be to do it."""
    if chosen.dry_run:
        raise _only_for_many("--dry-run")
    if chosen.with_reason is not None:
        raise _only_for_many("--with-reason")
    if chosen.order_key is not None:
        raise _only_for_many("--order-key")
    if chosen.before is not None:
        raise _only_for_many("--before")


def _only_for_many(option: str) -> click.UsageError:
    return click.UsageError(f"{option} is only for --lane, not for one ID")


def _decide_many(verb: Verb, chosen: Chosen, selection: Selection, *, decide: Decide) -> None:
    matched = ask(chosen.data_dir, lambda db: count_selected(db, selection, verb))
    if chosen.dry_run or matched == 0:
        print_record({"matched": matched}, as_json=chosen.as_json)
        return
    if not chosen.yes:
        what = f"{matched} {selection.state} items of lane {selection.lane}"
        confirm(f"{verb.capitalize()} {what}?")
    decided = ask(chosen.data_dir, lambda db: _decide_all(db, selection, decide, total=matched))
    record = {"changed": decided.changed, "unchanged": decided.unchanged}
    print_record({"matched": matched, **record}, as_json=chosen.as_json)


async def _decide_all(
    db: Connection, selection: Selection, decide: Decide, *, total: int
) -> Decided:
    """Go through all pages; each is committed by itself."""
    changed = unchanged = 0
    after = None
    with progress_bar() as progress:
        task = progress.add_task("items", total=total)
        while True:
            page = await decide_page(db, selection, decide, after=after)
            changed, unchanged = changed + page.changed, unchanged + page.unchanged
            progress.update(task, completed=changed + unchanged)
            after = page.last_id
            if after is None:
                return Decided(changed=changed, unchanged=unchanged, last_id=None)
