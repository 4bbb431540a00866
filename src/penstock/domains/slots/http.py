"""Slots over REST: the rate limiter's own paths, and what it lacked."""

from dataclasses import dataclass
from datetime import datetime

import msgspec

from penstock.base.errors import InvalidInput
from penstock.contract.http import Call, Content, Endpoint, NoParameters, Reply, Stream, endpoint
from penstock.domains.slots import batch, inspect, wire
from penstock.domains.slots.assign import SlotRequest
from penstock.domains.slots.calendar import END_AT
from penstock.domains.slots.cancel import cancel
from penstock.domains.slots.config import list_configs, read_config, set_config
from penstock.domains.slots.desk import Desk
from penstock.domains.slots.forecast import forecast
from penstock.domains.slots.reflow import reflow
from penstock.domains.slots.slot import BEGINNING, Slot, instant_text
from penstock.domains.slots.tell import (
    tell_assigned,
    tell_config,
    tell_forecast,
    tell_move,
    tell_reflow,
    tell_slot,
)
from penstock.postgres.pool import Pool

BATCH_BYTES_MAX = 512 * 1024 * 1024  # A million lines of the longest requests.


@dataclass(frozen=True, slots=True)
class Api:
    """The handlers; `desk` is where single requests queue."""

    db: Pool
    desk: Desk

    async def assign(self, call: Call[NoParameters, wire.NewSlot]) -> wire.Assigned:
        """Give an event its slot."""
        given = call.body
        request = SlotRequest(given.event_id, given.requested_time)
        return tell_assigned(await self.desk.assign(given.config_name, request))

    async def assign_batch(self, call: Call[NoParameters, Stream]) -> Content:
        """Give many events their slots."""
        return await batch.answer_batch(self.db, call.body)


async def show(call: Call[wire.EventRef, None]) -> wire.Slot:
    """Show an event's slot."""
    async with call.connection() as db:
        return tell_slot(await inspect.read_slot(db, call.parameters.event_id))


async def remove(call: Call[wire.EventRef, None]) -> None:
    """Give an event's slot back."""
    async with call.connection() as db:
        await cancel(db, call.parameters.event_id, who=call.who)


async def list_page(call: Call[wire.SlotQuery, None]) -> wire.SlotPage:
    """Show a page of slots."""
    query = call.parameters
    async with call.connection() as db:
        await read_config(db, query.config_name)
        found = await inspect.list_slots(
            db,
            query.config_name,
            from_at=query.from_ or BEGINNING,
            until_at=query.until or END_AT,
            created_from=query.created_from or BEGINNING,
            after=_place(query.after),
            limit=query.limit + 1,
        )
    page = found[: query.limit]
    following = _cursor(page[-1]) if len(found) > query.limit else None
    return wire.SlotPage(slots=[tell_slot(slot) for slot in page], next=following)


async def list_moves(call: Call[wire.MoveQuery, None]) -> wire.MovePage:
    """Show a page of moves."""
    query = call.parameters
    async with call.connection() as db:
        found = await inspect.list_moves(
            db, after=int(query.after or 0), reflow_id=query.reflow_id, limit=query.limit + 1
        )
    page = found[: query.limit]
    following = str(page[-1].move_id) if len(found) > query.limit else None
    return wire.MovePage(moves=[tell_move(move) for move in page], next=following)


async def show_heat_map(call: Call[wire.HeatMapQuery, None]) -> wire.HeatMap:
    """Show how full a pool is over time."""
    query = call.parameters
    async with call.connection() as db:
        found = await inspect.heat_map(
            db, query.config_name, from_at=query.from_, until_at=query.until, buckets=query.buckets
        )
    buckets = [
        wire.Bucket(start=instant_text(each.starts_at), capacity=each.capacity, booked=each.booked)
        for each in found
    ]
    return wire.HeatMap(config_name=query.config_name, buckets=buckets)


async def show_forecast(call: Call[NoParameters, wire.NewForecast]) -> wire.Forecast:
    """Say when so many would be through."""
    asked = call.body
    async with call.connection() as db:
        found = await forecast(db, asked.config_name, count=asked.count, from_at=asked.from_)
    return tell_forecast(asked.config_name, asked.count, found)


async def lay_out_anew(call: Call[NoParameters, wire.NewReflow]) -> wire.Reflow:
    """Move a pool's future slots to where its present rule has them."""
    asked = call.body
    async with call.connection() as db:
        done = await reflow(
            db,
            asked.config_name,
            freeze_until=asked.freeze_until or BEGINNING,
            who=call.who,
            is_dry_run=asked.dry_run,
        )
    return tell_reflow(asked.config_name, done, is_dry_run=asked.dry_run)


async def show_config(call: Call[wire.ConfigQuery, None]) -> wire.Config:
    """Show the active version of a config."""
    async with call.connection() as db:
        return tell_config(await read_config(db, call.parameters.name))


async def list_versions(call: Call[wire.ConfigQuery, None]) -> wire.Configs:
    """Show all versions of a config."""
    async with call.connection() as db:
        found = await list_configs(db, call.parameters.name)
    return wire.Configs(configs=[tell_config(each) for each in found])


async def configure(call: Call[NoParameters, wire.NewConfig]) -> Reply[wire.Config]:
    """Make a new version of a config."""
    given = call.body
    async with call.connection() as db:
        made = await set_config(
            db,
            given.config_name,
            who=call.who,
            max_per_window=given.max_per_window,
            window_size=given.window_size,
            spacing=None if given.spacing is msgspec.UNSET else given.spacing,
            horizon=None if given.horizon is msgspec.UNSET else given.horizon,
            calendar=given.calendar,
        )
    return Reply(tell_config(made), 201)


async def flush(_call: Call[NoParameters, None]) -> wire.Flushed:
    """Say that there is nothing to flush: every assignment reads its rule under the lock."""
    return wire.Flushed(flushed=0)


def endpoints(db: Pool) -> tuple[Endpoint, ...]:
    """Return the table of this domain's endpoints."""
    api = Api(db, Desk(db))
    return (
        endpoint(
            "POST", "/api/v1/slots", api.assign, scope="produce",
            summary="Give an event a slot",
        ),
        endpoint(
            "GET", "/api/v1/slots", list_page, scope="read",
            summary="List slots by window and time",
        ),
        endpoint(
            "POST", "/api/v1/slots/batch", api.assign_batch, scope="produce",
            body_bytes_max=BATCH_BYTES_MAX,
            streams={
                batch.JSON: (list[wire.NewSlot], list[wire.Result]),
                batch.NDJSON: (wire.NewSlot, wire.Result),
            },
            summary="Give up to a million events their slots, each answered for itself",
        ),
        endpoint(
            "POST", "/api/v1/slots/forecast", show_forecast, scope="read",
            summary="Say when so many would be through, and book nothing",
        ),
        endpoint(
            "POST", "/api/v1/slots/reflow", lay_out_anew, scope="admin",
            summary="Lay future slots out anew, or count what that would move",
        ),
        endpoint(
            "GET", "/api/v1/slots/moves", list_moves, scope="read",
            summary="List what reflows have moved",
        ),
        endpoint(
            "GET", "/api/v1/slots/heatmap", show_heat_map, scope="read",
            summary="Show how full a config's windows are over time",
        ),
        endpoint(
            "GET", "/api/v1/slots/{eventId}", show, scope="read", summary="Show an event's slot"
        ),
        endpoint(
            "DELETE", "/api/v1/slots/{eventId}", remove, scope="produce", statuses=(204,),
            summary="Give an event's slot back to the next caller",
        ),
        endpoint(
            "GET", "/admin/rate-limit/config", show_config, scope="admin",
            summary="Show the active version of a config",
        ),
        endpoint(
            "POST", "/admin/rate-limit/config", configure, scope="admin", statuses=(201,),
            summary="Make a new version of a config",
        ),
        endpoint(
            "GET", "/admin/rate-limit/config/versions", list_versions, scope="admin",
            summary="List all versions of a config",
        ),
        endpoint(
            "POST", "/admin/rate-limit/cache/flush", flush, scope="admin",
            summary="Do nothing: config changes hold for all nodes at once",
        ),
    )  # fmt: skip


def _cursor(slot: Slot) -> str:
    return f"{instant_text(slot.window_at)}_{slot.position}"


def _place(cursor: str | None) -> tuple[datetime, int]:
    if cursor is None:
        return BEGINNING, -1
    window, found, position = cursor.partition("_")
    if not found or not position.isdecimal() or len(position) > 12:
        raise InvalidInput("after", "is no cursor of ours")
    try:
        window_at = datetime.fromisoformat(window)
    except ValueError:
        raise InvalidInput("after", "is no cursor of ours") from None
    if window_at.tzinfo is None:
        raise InvalidInput("after", "is no cursor of ours")
    return window_at, int(position)
