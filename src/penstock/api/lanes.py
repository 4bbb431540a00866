"""Lanes over REST: read and explain them, set their policy, pause and resume them."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import msgspec

from penstock.api import wire
from penstock.base.errors import InvalidInput
from penstock.contract.http import NoParameters, Reply
from penstock.kernel import lane as kernel
from penstock.kernel.why import why_lane
from penstock.web.call import WebCall


async def list_all(call: WebCall[NoParameters, None]) -> wire.Lanes:
    """Show every lane."""
    async with call.connection() as db:
        return wire.Lanes(lanes=[_shown(lane) for lane in await kernel.list_lanes(db)])


async def show(call: WebCall[wire.LaneName, None]) -> wire.Lane:
    """Show one lane."""
    async with call.connection() as db:
        return _shown(await kernel.read_lane(db, call.parameters.name))


async def why(call: WebCall[wire.LaneName, None]) -> wire.WhyReasons:
    """Show what keeps the lane from running items."""
    async with call.connection() as db:
        return wire.to_reasons(await why_lane(db, call.parameters.name))


async def put(call: WebCall[wire.LaneName, wire.LaneChange]) -> Reply[wire.Lane]:
    """Create or change the lane; a field that is left out keeps its value, or is default."""
    name, policy = call.parameters.name, _policy(call.body)
    with _fields_as_sent():
        async with call.connection() as db, db.transaction():
            exists = name in {lane.name for lane in await kernel.list_lanes(db)}
            lane = await call.context.penstock.create_lane(db, name, who=call.who)
            if policy:
                lane = await kernel.set_lane(db, name, who=call.who, **policy)
    return Reply(_shown(lane), 200 if exists else 201)


async def patch(call: WebCall[wire.LaneName, wire.LaneChange]) -> wire.Lane:
    """Change a part of the lane's policy."""
    name, policy = call.parameters.name, _policy(call.body)
    with _fields_as_sent():
        async with call.connection() as db:
            if not policy:
                return _shown(await kernel.read_lane(db, name))
            return _shown(await kernel.set_lane(db, name, who=call.who, **policy))


async def pause(call: WebCall[wire.LaneName, None]) -> wire.Lane:
    """Stop claims from the lane."""
    async with call.connection() as db:
        return _shown(await kernel.pause_lane(db, call.parameters.name, who=call.who))


async def resume(call: WebCall[wire.LaneName, None]) -> wire.Lane:
    """Allow claims from the lane again."""
    async with call.connection() as db:
        return _shown(await kernel.resume_lane(db, call.parameters.name, who=call.who))


def _shown(lane: kernel.Lane) -> wire.Lane:
    return msgspec.convert(lane, wire.Lane, from_attributes=True)


def _policy(change: wire.LaneChange) -> dict[str, Any]:
    """Return the fields that were given, under the kernel's names."""
    given = _given(change)
    backoff = given.pop("backoff", None)
    nested = {} if backoff is None else _given(backoff)
    return given | {f"backoff_{field}": value for field, value in nested.items()}


def _given(change: msgspec.Struct) -> dict[str, Any]:
    fields = msgspec.structs.asdict(change)
    return {field: value for field, value in fields.items() if value is not msgspec.UNSET}


@contextmanager
def _fields_as_sent() -> Generator[None]:
    """Name a refused field as the caller wrote it: backoff is nested here, flat in the kernel."""
    try:
        yield
    except InvalidInput as refused:
        if refused.field.startswith("backoff_"):
            field = f"backoff.{refused.field.removeprefix('backoff_')}"
            raise InvalidInput(field, refused.reason) from refused
        raise
