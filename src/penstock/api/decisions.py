"""Operators' decisions over REST: hold, release, resolve and skip one item, or many by a filter."""

from functools import partial

import msgspec

from penstock.api import wire
from penstock.api.items import found_item
from penstock.contract.http import NoParameters
from penstock.contract.paging import read_id
from penstock.kernel import operate
from penstock.kernel.guard import Verb
from penstock.kernel.item import ItemId
from penstock.kernel.select import Decide, SelectableState, Selection, count_selected, decide_page
from penstock.postgres.pool import Connection
from penstock.web.call import WebCall


async def hold(call: WebCall[wire.ItemRef, wire.Decision]) -> wire.Item:
    """Hold a waiting item."""
    return await _decide_one(call, partial(operate.hold, who=call.who, reason=call.body.reason))


async def release(call: WebCall[wire.ItemRef, wire.Decision]) -> wire.Item:
    """Try a held item again."""
    return await _decide_one(call, partial(operate.release, who=call.who, reason=call.body.reason))


async def skip(call: WebCall[wire.ItemRef, wire.Decision]) -> wire.Item:
    """End the head of an order key, so that the next item follows."""
    return await _decide_one(call, partial(operate.skip, who=call.who, reason=call.body.reason))


async def resolve(call: WebCall[wire.ItemRef, wire.Resolution]) -> wire.Item:
    """End a held item as done or dead."""
    return await _decide_one(call, _resolution(call.body, who=call.who))


async def hold_many(call: WebCall[NoParameters, wire.DecisionOnMany]) -> wire.Decided:
    """Hold the waiting items that match."""
    decide = partial(operate.hold, who=call.who, reason=call.body.reason)
    return await _decide_many(call, "hold", state="waiting", decide=decide)


async def release_many(call: WebCall[NoParameters, wire.DecisionOnMany]) -> wire.Decided:
    """Try the held items that match again."""
    decide = partial(operate.release, who=call.who, reason=call.body.reason)
    return await _decide_many(call, "release", state="held", decide=decide)


async def skip_many(call: WebCall[NoParameters, wire.SkipMany]) -> wire.Decided:
    """End the heads that match."""
    decide = partial(operate.skip, who=call.who, reason=call.body.reason)
    return await _decide_many(call, "skip", state=call.body.state, decide=decide)


async def resolve_many(call: WebCall[NoParameters, wire.ResolutionOfMany]) -> wire.Decided:
    """End the held items that match as done or dead."""
    decide = _resolution(call.body, who=call.who)
    return await _decide_many(call, "resolve", state="held", decide=decide)


def _resolution(body: wire.Resolution | wire.ResolutionOfMany, *, who: str) -> Decide:
    result = None if body.result is msgspec.UNSET else body.result
    operate.check_resolution(body.outcome, result)

    async def decide(db: Connection, item_id: ItemId) -> None:
        await operate.resolve(db, item_id, body.outcome, who=who, reason=body.reason, result=result)

    return decide


async def _decide_one(
    call: WebCall[wire.ItemRef, wire.Decision] | WebCall[wire.ItemRef, wire.Resolution],
    decide: Decide,
) -> wire.Item:
    item_id = ItemId(call.parameters.item_id)
    async with call.connection() as db:
        await decide(db, item_id)
        return await found_item(db, item_id)


async def _decide_many(
    call: WebCall[NoParameters, wire.DecisionOnMany]
    | WebCall[NoParameters, wire.SkipMany]
    | WebCall[NoParameters, wire.ResolutionOfMany],
    verb: Verb,
    *,
    state: SelectableState,
    decide: Decide,
) -> wire.Decided:
    body = call.body
    operate.check_decision(who=call.who, reason=body.reason)
    selection = Selection(
        lane=body.lane,
        state=state,
        reason=body.with_reason,
        order_key=body.with_order_key,
        before=body.before,
        only_heads=verb == "skip",
    )
    after = read_id(body.after)
    async with call.connection() as db:
        if body.dry_run:
            matched = await count_selected(db, selection, verb)
            return wire.Decided(matched=matched, changed=0, unchanged=0, next=None)
        decided = await decide_page(
            db, selection, decide, after=None if after is None else ItemId(after)
        )
    return wire.Decided(
        matched=decided.changed + decided.unchanged,
        changed=decided.changed,
        unchanged=decided.unchanged,
        next=None if decided.last_id is None else str(decided.last_id),
    )
