"""Dead letters over REST: list, count and replay them."""

import msgspec

from penstock.api import wire
from penstock.contract.http import NoParameters, Reply
from penstock.contract.paging import read_id, take_page
from penstock.kernel import inspect
from penstock.kernel import replay as kernel
from penstock.kernel.item import ItemId
from penstock.web.call import WebCall


async def list_page(call: WebCall[wire.DeadQuery, None]) -> wire.DeadPage:
    """Show a page of dead letters."""
    query = call.parameters
    after = read_id(query.after)
    async with call.connection() as db:
        found = await inspect.list_dead(
            db,
            lane=query.lane,
            after=None if after is None else ItemId(after),
            limit=query.limit + 1,
        )
    letters, following = take_page(found, query.limit, lambda letter: letter.id)
    shown = msgspec.convert(list(letters), list[wire.DeadLetter], from_attributes=True)
    return wire.DeadPage(items=shown, next=following)


async def replay(call: WebCall[NoParameters, wire.ReplayRequest]) -> Reply[wire.ReplayAnswer]:
    """Start a replay, or only count the items that it would return to the queue."""
    wanted = call.body
    async with call.connection() as db:
        if wanted.dry_run:
            counted = await kernel.count_dead(db, wanted.lane, reason=wanted.reason)
            return Reply(wire.ReplayAnswer(counted=counted, replay=None), 200)
        job = await kernel.start_replay(db, wanted.lane, who=call.who, reason=wanted.reason)
    return Reply(wire.ReplayAnswer(counted=job.counted, replay=_shown(job)), 202)


async def list_replays(call: WebCall[NoParameters, None]) -> wire.Replays:
    """Show the latest replays."""
    async with call.connection() as db:
        return wire.Replays(replays=[_shown(job) for job in await kernel.list_replays(db)])


async def show_replay(call: WebCall[wire.DeadReplayRef, None]) -> wire.DeadReplay:
    """Show the progress of a replay."""
    async with call.connection() as db:
        return _shown(await kernel.read_replay(db, call.parameters.replay_id))


def _shown(job: kernel.DeadReplay) -> wire.DeadReplay:
    return msgspec.convert(job, wire.DeadReplay, from_attributes=True)
