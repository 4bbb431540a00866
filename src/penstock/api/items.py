"""Items over REST: accept, find, explain, cancel, retry and reschedule them."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec

from penstock.api import wire
from penstock.base.errors import InvalidInput
from penstock.contract.http import NoParameters
from penstock.contract.paging import read_id
from penstock.kernel import inspect, operate
from penstock.kernel.errors import UnknownItem, UnknownLane
from penstock.kernel.item import Accepted, ItemId, NewItem
from penstock.kernel.lane import list_lanes
from penstock.kernel.why import why_item
from penstock.postgres.pool import Connection, Queries
from penstock.web.call import WebCall

IDEMPOTENCY_KEY = "Idempotency-Key"

_INDEXED = re.compile(r"items\[(\d+)\](.*)", re.DOTALL)


async def accept(call: WebCall[NoParameters, wire.NewItem]) -> wire.Accepted:
    """Accept one item."""
    given = call.body
    key = _key(given.key, call.headers.get(IDEMPOTENCY_KEY))
    async with call.connection() as db, _naming_lanes(db):
        accepted = await call.context.penstock.enqueue(
            given.lane,
            given.payload,
            key=key,
            due_at=given.due_at,
            order_key=given.order_key,
            not_after=given.not_after,
            limit_keys=given.limit_keys,
            connection=db,
        )
    return wire.Accepted(id=accepted.id, is_new=accepted.is_new)


async def accept_many(call: WebCall[NoParameters, wire.NewItems]) -> wire.AcceptedMany:
    """Accept many items, of one lane or several, all or none."""
    by_lane: dict[str, list[int]] = {}
    for index, given in enumerate(call.body):
        by_lane.setdefault(given.lane, []).append(index)
    accepted: dict[int, Accepted] = {}
    async with call.connection() as db, _naming_lanes(db), db.transaction():
        # In the order of their names, so that two batches with the same keys cannot deadlock.
        for lane, indexes in sorted(by_lane.items()):
            answers = await _accept_in(db, call, lane=lane, indexes=indexes)
            accepted.update(zip(indexes, answers, strict=True))
    ordered = (accepted[index] for index in range(len(call.body)))
    return wire.AcceptedMany(
        items=[wire.Accepted(id=answer.id, is_new=answer.is_new) for answer in ordered]
    )


async def list_page(call: WebCall[wire.ItemQuery, None]) -> wire.ItemPage:
    """Show a page of a lane's items; one with a filter may be short, and still have a `next`."""
    query = call.parameters
    only = inspect.ItemFilter(
        state=query.state, order_key=query.order_key, since=query.since, until=query.until
    )
    after = read_id(query.after)
    async with call.connection() as db:
        page = await inspect.list_items(
            db,
            query.lane,
            only=only,
            after=None if after is None else ItemId(after),
            limit=query.limit,
        )
    following = None if page.next is None else str(page.next)
    return wire.ItemPage(items=[_shown(item) for item in page.items], next=following)


async def show(call: WebCall[wire.ItemRef, None]) -> wire.ItemDetail:
    """Show one item with its payload and attempts."""
    async with call.connection() as db:
        item = await _found(db, ItemId(call.parameters.item_id))
        return await _detail(db, item)


async def show_by_key(call: WebCall[wire.ItemByKey, None]) -> wire.ItemDetail:
    """Show the item with a key."""
    async with call.connection() as db:
        item = await inspect.find_item(db, call.parameters.lane, call.parameters.key)
        return await _detail(db, item)


async def why(call: WebCall[wire.ItemRef, None]) -> wire.WhyReasons:
    """Show why an item has not run."""
    async with call.connection() as db:
        return wire.to_reasons(await why_item(db, ItemId(call.parameters.item_id)))


async def cancel(call: WebCall[wire.ItemRef, wire.OptionalReason | None]) -> wire.Item:
    """Cancel an item that no worker holds."""
    item_id = ItemId(call.parameters.item_id)
    async with call.connection() as db:
        await operate.cancel(db, item_id, who=call.who, reason=_reason(call.body))
        return await found_item(db, item_id)


async def retry(call: WebCall[wire.ItemRef, wire.OptionalReason | None]) -> wire.Item:
    """Give a dead item another set of attempts."""
    item_id = ItemId(call.parameters.item_id)
    async with call.connection() as db:
        await operate.retry(db, item_id, who=call.who, reason=_reason(call.body))
        return await found_item(db, item_id)


async def reschedule(call: WebCall[wire.ItemRef, wire.Reschedule]) -> wire.Item:
    """Give an item that no worker holds another due instant."""
    item_id = ItemId(call.parameters.item_id)
    async with call.connection() as db:
        await operate.reschedule(
            db, item_id, call.body.due_at, who=call.who, reason=call.body.reason
        )
        return await found_item(db, item_id)


def _reason(body: wire.OptionalReason | None) -> str | None:
    return None if body is None else body.reason


def _key(in_body: str | None, in_header: str | None) -> str | None:
    """Return the item's key from the body or the header; in both, they must be equal."""
    if in_body is not None and in_header is not None and in_body != in_header:
        raise InvalidInput("key", f"differs from the header {IDEMPOTENCY_KEY}")
    return in_header if in_body is None else in_body


async def _accept_in(
    db: Connection, call: WebCall[NoParameters, wire.NewItems], *, lane: str, indexes: list[int]
) -> list[Accepted]:
    """Accept the items of one lane; an error has the index of the item in the request."""
    given = [call.body[index] for index in indexes]
    items = [
        NewItem(
            payload=one.payload,
            key=one.key,
            due_at=one.due_at,
            order_key=one.order_key,
            not_after=one.not_after,
            limit_keys=one.limit_keys,
        )
        for one in given
    ]
    try:
        return await call.context.penstock.enqueue_many(lane, items, connection=db)
    except InvalidInput as refused:
        placed = _INDEXED.fullmatch(refused.field)
        if placed is None:
            raise
        field = f"items[{indexes[int(placed[1])]}]{placed[2]}"
        raise InvalidInput(field, refused.reason) from refused


@asynccontextmanager
async def _naming_lanes(db: Queries) -> AsyncGenerator[None]:
    """Add the known lanes to the error for an unknown lane."""
    try:
        yield
    except UnknownLane as unknown:
        known = tuple(lane.name for lane in await list_lanes(db))
        raise UnknownLane(unknown.lane, known) from unknown


async def found_item(db: Queries, item_id: ItemId) -> wire.Item:
    """Return an item as it is now, or raise UnknownItem."""
    return _shown(await _found(db, item_id))


async def _found(db: Queries, item_id: ItemId) -> inspect.ItemView:
    item = await inspect.read_item(db, item_id)
    if item is None:
        raise UnknownItem(item_id)
    return item


async def _detail(db: Queries, item: inspect.ItemView) -> wire.ItemDetail:
    attempts = await inspect.read_attempts(db, item.id)
    return wire.ItemDetail(
        **msgspec.structs.asdict(_shown(item)),
        payload=msgspec.Raw(item.payload or "null"),
        history=[_attempt(attempt) for attempt in attempts],
    )


def _shown(item: inspect.ItemView) -> wire.Item:
    return msgspec.convert(item, wire.Item, from_attributes=True)


def _attempt(attempt: inspect.AttemptView) -> wire.Attempt:
    return wire.Attempt(
        attempt=attempt.attempt,
        outcome=attempt.outcome,
        claimed_at=attempt.claimed_at,
        settled_at=attempt.settled_at,
        retry_at=attempt.retry_at,
        duration_ms=attempt.duration_ms,
        reason=attempt.reason,
        result=None if attempt.result is None else msgspec.Raw(attempt.result),
        token=attempt.token,
        resolved_by=attempt.resolved_by,
    )
