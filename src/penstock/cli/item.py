"""`penstock item`: show, explain, enqueue, retry, cancel and reschedule items."""

import sys
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, get_args

import click
import msgspec

from penstock.base.errors import InvalidInput
from penstock.cli.decisions import DECISIONS
from penstock.cli.reasons import print_reasons
from penstock.console.database import ask, data_dir_option
from penstock.console.output import (
    json_option,
    print_json,
    print_record,
    print_rows,
    progress_bar,
    raw,
    without,
)
from penstock.console.values import ITEM_ID, LIMIT, parse_instant, parse_when
from penstock.kernel.enqueue import check, enqueue, enqueue_many
from penstock.kernel.errors import UnknownItem
from penstock.kernel.inspect import (
    ItemFilter,
    ItemPage,
    ItemState,
    ItemView,
    find_item,
    list_items,
    read_attempts,
    read_item,
)
from penstock.kernel.item import Accepted, ItemId, NewItem
from penstock.kernel.why import Reason, why_item
from penstock.postgres.pool import Connection

PAGES_MAX = 100  # Of 1,000 items each: seconds, and then the command says how to continue.
LINE_BYTES_MAX = 64 * 1024 * 1024  # The largest payload that a lane may allow.


@click.group()
def item() -> None:
    """Show and enqueue items, and decide about them."""


for _command in DECISIONS:
    item.add_command(_command)


@item.command()
@click.argument("item_id", type=ITEM_ID, metavar="ID", required=False)
@click.option("--lane", help="With --key: find the item by its key instead.")
@click.option("--key", help="The key that it was enqueued with.")
@data_dir_option
@json_option
def show(
    *,
    item_id: int | None,
    lane: str | None,
    key: str | None,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Show one item, its payload and its attempts."""
    find = _finder(item_id, lane, key)

    async def read(db: Connection) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        found = await find(db)
        attempts = [asdict(attempt) for attempt in await read_attempts(db, found.id)]
        record = asdict(found) | {"payload": raw(found.payload)}
        return record, [each | {"result": raw(each["result"])} for each in attempts]

    record, attempts = ask(data_dir, read)
    if as_json:
        print_json(record | {"history": attempts})
        return
    print_record(record, as_json=False)
    if attempts:
        click.echo()
        rows = [without(attempt, ["claimed_at", "token"]) for attempt in attempts]
        print_rows(rows, as_json=False, none="")


@item.command()
@click.argument("item_id", type=ITEM_ID, metavar="ID", required=False)
@click.option("--lane", help="With --key: find the item by its key instead.")
@click.option("--key", help="The key that it was enqueued with.")
@data_dir_option
@json_option
def why(
    *,
    item_id: int | None,
    lane: str | None,
    key: str | None,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Show why an item has not run, one reason per line."""
    find = _finder(item_id, lane, key)

    async def read(db: Connection) -> list[Reason]:
        return await why_item(db, (await find(db)).id)

    print_reasons(ask(data_dir, read), as_json=as_json)


def _finder(
    item_id: int | None, lane: str | None, key: str | None
) -> Callable[[Connection], Awaitable[ItemView]]:
    """Return how to read the item with an id, or with a key in a lane; raises UsageError."""
    if (item_id is None) != (lane is not None and key is not None):
        raise click.UsageError("give either an ID, or --lane and --key")

    async def find(db: Connection) -> ItemView:
        if lane is not None and key is not None:
            return await find_item(db, lane, key)
        assert item_id is not None, "checked above"
        found = await read_item(db, ItemId(item_id))
        if found is None:
            raise UnknownItem(item_id)
        return found

    return find


@item.command("list")
@click.argument("lane")
@click.option("--state", type=click.Choice(get_args(ItemState)), help="Only in this state.")
@click.option("--order-key", help="Only with this order key.")
@click.option("--since", metavar="INSTANT", help="Accepted then or later; -1h is an hour ago.")
@click.option("--until", metavar="INSTANT", help="Accepted before.")
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="How many.")
@click.option("--after", type=ITEM_ID, metavar="ID", help="Continue after this item.")
@data_dir_option
@json_option
def list_(  # noqa: PLR0913  One parameter per option.
    *,
    lane: str,
    state: ItemState | None,
    order_key: str | None,
    since: str | None,
    until: str | None,
    limit: int,
    after: int | None,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """List a lane's items, the newest first.

    With a filter by state or time, up to 100,000 items are looked at; if there are more, the
    command prints with which --after to continue.
    """
    only = ItemFilter(
        state=state,
        order_key=order_key,
        since=parse_when(since, field="--since"),
        until=parse_when(until, field="--until"),
    )
    start = None if after is None else ItemId(after)
    page = ask(data_dir, lambda db: _read_pages(db, lane, only=only, after=start, limit=limit))
    rows = [without(asdict(each), ["payload", "lane"]) for each in page.items]
    print_rows(rows, as_json=as_json, none=f"lane {lane} has no items here")
    if page.next is not None and len(page.items) < limit:
        click.echo(f"there are more items to look at: --after {page.next}", err=True)


async def _read_pages(
    db: Connection, lane: str, *, only: ItemFilter, after: ItemId | None, limit: int
) -> ItemPage:
    """Read until there are `limit` items; a page with a filter may be short."""
    items: list[ItemView] = []
    for _ in range(PAGES_MAX):
        page = await list_items(db, lane, only=only, after=after, limit=limit - len(items))
        items, after = items + page.items, page.next
        if after is None or len(items) == limit:
            break
    return ItemPage(items=items, next=after)


# ------------------------------------------------------------------------------------- enqueue


class ItemLine(msgspec.Struct, forbid_unknown_fields=True):
    """One line of a file of items."""

    payload: Any
    key: str | None = None
    due_at: datetime | None = None
    order_key: str | None = None
    not_after: datetime | None = None
    limit_keys: dict[str, str] | None = None


@item.command("enqueue")
@click.argument("lane")
@click.argument("payload", required=False, metavar="[JSON]")
@click.option("--key", help="Your own id: the same key again is the same item.")
@click.option("--due-at", metavar="INSTANT", help="When it is due; +5m is from now.  [now]")
@click.option("--order-key", help="Items with the same one run one after another.")
@click.option(
    "--not-after", metavar="INSTANT", help="Its deadline; it ends dead if that passes first."
)
@click.option(
    "--limit-key",
    "limit_keys",
    multiple=True,
    metavar="NAME=VALUE",
    help="A limit key, such as tenant=42; may be given several times.",
)
@click.option(
    "--file",
    "source",
    type=click.File("rb"),
    help='Many items, one per line: {"payload": ..., "key": ...}; - for standard input.',
)
@data_dir_option
@json_option
def enqueue_(  # noqa: PLR0913  One parameter per option.
    *,
    lane: str,
    payload: str | None,
    key: str | None,
    due_at: str | None,
    order_key: str | None,
    not_after: str | None,
    limit_keys: tuple[str, ...],
    source: BinaryIO | None,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Enqueue one item as JSON, or with --file many of them, all or none.

    JSON may be - to read one payload from standard input. Lines of a file are objects with
    `payload`, and optionally `key`, `due_at`, `order_key`, `not_after` and `limit_keys`.
    """
    if (payload is None) == (source is None):
        raise click.UsageError("give either a JSON payload or --file")
    if source is not None:
        if any((key, due_at, order_key, not_after, limit_keys)):
            raise click.UsageError("with --file, keys and instants are part of its lines")
        _enqueue_file(lane, source, data_dir, as_json=as_json)
        return
    new = NewItem(
        payload=_decode(payload),
        key=key,
        due_at=_instant("due_at", due_at),
        order_key=order_key,
        not_after=_instant("not_after", not_after),
        limit_keys=_limit_keys(limit_keys),
    )
    accepted = ask(data_dir, lambda db: enqueue(db, lane, new))
    print_record({"id": accepted.id, "is_new": accepted.is_new}, as_json=as_json)


def _limit_keys(words: tuple[str, ...]) -> dict[str, str] | None:
    keys: dict[str, str] = {}
    for word in words:
        name, found, value = word.partition("=")
        if not found:
            raise InvalidInput("limit_keys", f"{word!r} must look like name=value")
        if name in keys:
            raise InvalidInput("limit_keys", f"{name} is given twice")
        keys[name] = value
    return keys or None


def _instant(field: str, text: str | None) -> datetime | None:
    return None if text is None else parse_instant(text, field=field)


def _decode(payload: str | None) -> object:
    try:
        text = sys.stdin.read() if payload == "-" else payload or ""
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as refused:
        raise InvalidInput("payload", f"is not JSON: {refused}") from None


def _enqueue_file(lane: str, source: BinaryIO, data_dir: Path | None, *, as_json: bool) -> None:
    async def enqueue_lines(db: Connection) -> list[Accepted]:
        with counted(_read_lines(source)) as items:
            return await enqueue_many(db, lane, items)

    accepted = ask(data_dir, enqueue_lines)
    if as_json:
        for each in accepted:
            print_json({"id": each.id, "is_new": each.is_new})
        return
    new = sum(each.is_new for each in accepted)
    click.echo(f"accepted {new} items, {len(accepted) - new} were known already")


@contextmanager
def counted(items: Iterable[NewItem]) -> Generator[Iterator[NewItem]]:
    """Yield the items, and show how many have been read."""
    with progress_bar() as progress:
        task = progress.add_task("enqueue", total=None)

        def count() -> Iterator[NewItem]:
            for each in items:
                yield each
                progress.advance(task)

        yield count()


def _read_lines(source: BinaryIO) -> Iterator[NewItem]:
    """Yield the items of a file; raises InvalidInput with the number of the line."""
    decoder = msgspec.json.Decoder(ItemLine)
    number = 0
    try:
        while text := source.readline(LINE_BYTES_MAX):
            number += 1
            if text.strip():
                yield _to_item(decoder, text)
    except InvalidInput as refused:
        raise InvalidInput(f"line {number}, {refused.field}", refused.reason) from refused


def _to_item(decoder: msgspec.json.Decoder[ItemLine], text: bytes) -> NewItem:
    try:
        line = decoder.decode(text)
    except msgspec.ValidationError as refused:
        reason, _, path = str(refused).partition(" - at `$.")
        raise InvalidInput(path.rstrip("`") or "item", reason) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as refused:
        raise InvalidInput("item", f"is not JSON: {refused}") from None
    new = NewItem(
        payload=line.payload,
        key=line.key,
        due_at=line.due_at,
        order_key=line.order_key,
        not_after=line.not_after,
        limit_keys=line.limit_keys,
    )
    check(new)
    return new
