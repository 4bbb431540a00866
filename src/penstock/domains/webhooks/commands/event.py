"""`penstock event`: accept events for webhooks, and see what became of them."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
import msgspec

from penstock.base.errors import InvalidInput
from penstock.base.settings import settings
from penstock.console.database import ask, data_dir_option
from penstock.console.output import json_option, print_json, print_record, print_rows, raw, without
from penstock.console.values import LIMIT, parse_when
from penstock.domains.webhooks import wire
from penstock.domains.webhooks.accept import accept_events
from penstock.domains.webhooks.commands.subscription.typed_options import (
    in_typed_words,
    read_text,
    tenant_option,
    utf8,
)
from penstock.domains.webhooks.domain import LANE
from penstock.domains.webhooks.event import NewEvent, check, read_data
from penstock.domains.webhooks.inspect import (
    AttemptView,
    DeliveryView,
    EventView,
    find_event,
    list_attempts,
    list_deliveries,
    list_events,
    read_event,
)
from penstock.domains.webhooks.subscription import read_subscription
from penstock.domains.webhooks.wire import (
    DELIVERIES_SHOWN,
    to_wire_accepted,
    to_wire_attempt,
    to_wire_delivery,
    to_wire_delivery_page,
    to_wire_event,
    to_wire_event_detail,
)
from penstock.kernel.driver import translated
from penstock.kernel.errors import UnknownLane
from penstock.postgres.pool import Connection

RESPONSE_LENGTH_MAX = 60  # In a table; --json shows what was kept of it.

event_argument = click.argument("event_id", metavar="ID", callback=utf8)
_value = msgspec.json.Decoder(msgspec.Raw)


@click.group()
def event() -> None:
    """Accept events for webhooks, and show their deliveries.

    JSON input and output have the field names of the REST API.
    """


@event.command()
@click.argument("event_type", metavar="TYPE", callback=utf8)
@click.argument("data", metavar="[JSON|-|@FILE]", default="{}", callback=utf8)
@click.option(
    "--id",
    "event_id",
    callback=utf8,
    help="Your own id; the same id with other content is a conflict.",
)
@click.option("--source", callback=utf8, help="Where it happened.")
@tenant_option
@click.option("--key", callback=utf8, help="Idempotency key, in place of an id.")
@data_dir_option
@json_option
def send(
    *,
    event_type: str,
    data: str,
    event_id: str | None,
    source: str | None,
    tenant: str,
    key: str | None,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Accept an event such as order.paid, with a delivery to each subscription that wants it.

    The data is JSON, or - for standard input, or @FILE; `{}` if omitted. The event and all its
    deliveries are stored when this returns, also where PENSTOCK_EVENTS_TO is kafka.
    """
    new = NewEvent(
        type=event_type,
        data=_data(data),
        id=event_id,
        source=source,
        tenant=tenant,
        idempotency_key=key,
    )
    with in_typed_words():
        check(new)
        sent = ask(data_dir, lambda db: _accept(db, new))
    if as_json:
        print_json(sent)
    else:
        print_record(msgspec.structs.asdict(sent), as_json=False)


def _data(word: str) -> str:
    bytes_max = settings().payload_bytes_max
    text = read_text(word, field="JSON", bytes_max=bytes_max)
    try:
        value = _value.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as refused:
        raise InvalidInput("JSON", f"is not JSON: {refused}") from None
    with in_typed_words():
        return read_data(value, bytes_max=bytes_max)


async def _accept(db: Connection, new: NewEvent) -> wire.AcceptedEvent:
    try:
        with translated(LANE):
            (accepted,) = await accept_events(db, [new])
    except UnknownLane as missing:
        missing.add_note("it is made when `penstock up`, `serve` or `worker` first runs")
        raise
    return to_wire_accepted(accepted)


@event.command()
@event_argument
@tenant_option
@data_dir_option
@json_option
def show(*, event_id: str, tenant: str, data_dir: Path | None, as_json: bool) -> None:
    """Show an event, its data, its status and the first 100 of its deliveries."""
    limit = DELIVERIES_SHOWN

    async def read(db: Connection) -> tuple[EventView, list[DeliveryView]]:
        found = await read_event(db, tenant, event_id)
        return found, await list_deliveries(db, found.number, limit=limit + 1)

    found, listed = ask(data_dir, read)
    if as_json:
        print_json(to_wire_event_detail(found, to_wire_delivery_page(listed, limit)))
        return
    print_record(without(asdict(found) | {"data": raw(found.data)}, ["number"]), as_json=False)
    if listed:
        click.echo()
        _print_deliveries(listed[:limit])
    if len(listed) > limit:
        last = listed[limit - 1].subscription_id
        click.echo(f"more: penstock event deliveries {event_id} --after {last}", err=True)


@event.command()
@event_argument
@tenant_option
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="How many.")
@click.option(
    "--after", metavar="ID", callback=utf8, help="Continue after the delivery to this subscription."
)
@data_dir_option
@json_option
def deliveries(
    *,
    event_id: str,
    tenant: str,
    limit: int,
    after: str | None,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """List the deliveries of an event, one for each subscription, the oldest first."""

    async def read(db: Connection) -> list[DeliveryView]:
        number = 0
        if after is not None:
            number = (await read_subscription(db, after, also_deleted=True)).number
        return await list_deliveries(
            db, await find_event(db, tenant, event_id), after=number, limit=limit
        )

    found = ask(data_dir, read)
    if as_json:
        for each in found:
            print_json(to_wire_delivery(each))
    else:
        _print_deliveries(found)


def _print_deliveries(found: Sequence[DeliveryView]) -> None:
    rows = [without(asdict(each), ["number"]) for each in found]
    print_rows(rows, as_json=False, none="there are no deliveries here")


@event.command()
@event_argument
@tenant_option
@data_dir_option
@json_option
def attempts(*, event_id: str, tenant: str, data_dir: Path | None, as_json: bool) -> None:
    """List every attempt to deliver an event, the oldest first."""

    async def read(db: Connection) -> list[AttemptView]:
        return await list_attempts(db, await read_event(db, tenant, event_id))

    found = ask(data_dir, read)
    if as_json:
        for each in found:
            print_json(to_wire_attempt(each))
        return
    rows = [asdict(each) | {"response_body": _short(each.response_body)} for each in found]
    print_rows(rows, as_json=False, none="nothing has been tried yet")


def _short(response: str | None) -> str | None:
    """Return a response in one line of characters that a terminal takes as they are."""
    if not response:
        return None
    line = "".join(each if each.isprintable() else " " for each in response[:1_000])
    line = " ".join(line.split())
    is_long = len(line) > RESPONSE_LENGTH_MAX or len(response) > 1_000
    return f"{line[:RESPONSE_LENGTH_MAX]}..." if is_long else line


@event.command("list")
@tenant_option
@click.option("--type", "event_type", callback=utf8, help="Only of exactly this type.")
@click.option(
    "--from", "from_", metavar="INSTANT", help="Accepted then or later; -1h is an hour ago."
)
@click.option("--until", metavar="INSTANT", help="Accepted before.")
@click.option("--limit", type=LIMIT, default=20, show_default=True, help="How many.")
@click.option("--after", metavar="ID", callback=utf8, help="Continue after this event.")
@data_dir_option
@json_option
def list_(
    *,
    tenant: str,
    event_type: str | None,
    from_: str | None,
    until: str | None,
    limit: int,
    after: str | None,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """List a tenant's events, the newest first."""
    from_at, until_at = parse_when(from_, field="--from"), parse_when(until, field="--until")

    async def read(db: Connection) -> list[EventView]:
        return await list_events(
            db,
            tenant,
            types=None if event_type is None else [event_type],
            from_at=from_at,
            until_at=until_at,
            before=None if after is None else (await read_event(db, tenant, after)).number,
            limit=limit,
        )

    found = ask(data_dir, read)
    if as_json:
        for each in found:
            print_json(to_wire_event(each))
        return
    left_out = ["number", "tenant", "source", "data", "max_attempts", "updated_at"]
    rows = [without(asdict(each), left_out) for each in found]
    print_rows(rows, as_json=False, none="there are no events here")
