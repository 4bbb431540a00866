"""The REST endpoints of slots, with the paths of the rate limiter that they replace."""

from dataclasses import dataclass
from datetime import datetime

import msgspec

from penstock.base.errors import InvalidInput
from penstock.calendar.instant import END_AT, EPOCH
from penstock.contract.http import Call, Content, Endpoint, NoParameters, Reply, Stream, endpoint
from penstock.contract.ndjson import NDJSON
from penstock.contract.paging import read_id, take_page
from penstock.domains.slots import batch, inspect, wire
from penstock.domains.slots.assign import SlotRequest
from penstock.domains.slots.batcher import SlotBatcher
from penstock.domains.slots.cancel import cancel
from penstock.domains.slots.config import list_configs, read_config, set_config
from penstock.domains.slots.forecast import forecast
from penstock.domains.slots.reflow import reflow
from penstock.domains.slots.slot import Slot, instant_text
from penstock.domains.slots.wire import (
    to_wire_assigned,
    to_wire_config,
    to_wire_forecast,
    to_wire_move,
    to_wire_reflow,
    to_wire_slot,
)
from penstock.postgres.pool import Pool

BATCH_BYTES_MAX = 512 * 1024 * 1024  # A million lines of the longest requests.


@dataclass(frozen=True, slots=True)
class Api:
    """The handlers that share state; `batcher` combines single requests."""

    db: Pool
    batcher: SlotBatcher

    async def assign(self, call: Call[NoParameters, wire.NewSlot]) -> wire.Assigned:
        """Assign a slot to an event."""
        given = call.body
        request = SlotRequest(given.event_id, given.requested_time)
        return to_wire_assigned(await self.batcher.assign(given.config_name, request))

    async def assign_batch(self, call: Call[NoParameters, Stream]) -> Content:
        """Assign slots to many events."""
        return await batch.answer_batch(self.db, call.body)


async def show(call: Call[wire.EventRef, None]) -> wire.Slot:
    """Show an event's slot."""
    async with call.connection() as db:
        return to_wire_slot(await inspect.read_slot(db, call.parameters.event_id))


async def remove(call: Call[wire.EventRef, None]) -> None:
    """Cancel an event's slot."""
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
            from_at=query.from_ or EPOCH,
            until_at=query.until or END_AT,
            created_from=query.created_from or EPOCH,
            after=_place(query.after),
            limit=query.limit + 1,
        )
    page, following = take_page(found, query.limit, _cursor)
    return wire.SlotPage(slots=[to_wire_slot(slot) for slot in page], next=following)


async def list_moves(call: Call[wire.MoveQuery, None]) -> wire.MovePage:
    """Show a page of moves."""
    query = call.parameters
    async with call.connection() as db:
        found = await inspect.list_moves(
            db, after=read_id(query.after) or 0, reflow_id=query.reflow_id, limit=query.limit + 1
        )
    page, following = take_page(found, query.limit, lambda each: each.move_id)
    return wire.MovePage(moves=[to_wire_move(move) for move in page], next=following)


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
    """Return the first and last slot that `count` requests would get."""
    asked = call.body
    async with call.connection() as db:
        found = await forecast(db, asked.config_name, count=asked.count, from_at=asked.from_)
    return to_wire_forecast(asked.config_name, asked.count, found)


async def start_reflow(call: Call[NoParameters, wire.NewReflow]) -> wire.Reflow:
    """Reassign a pool's future slots under its present rule."""
    asked = call.body
    async with call.connection() as db:
        done = await reflow(
            db,
            asked.config_name,
            freeze_until=asked.freeze_until or EPOCH,
            who=call.who,
            is_dry_run=asked.dry_run,
        )
    return to_wire_reflow(asked.config_name, done, is_dry_run=asked.dry_run)


async def show_config(call: Call[wire.ConfigQuery, None]) -> wire.Config:
    """Show the active version of a config."""
    async with call.connection() as db:
        return to_wire_config(await read_config(db, call.parameters.name))


async def list_versions(call: Call[wire.ConfigQuery, None]) -> wire.Configs:
    """Show all versions of a config."""
    async with call.connection() as db:
        found = await list_configs(db, call.parameters.name)
    return wire.Configs(configs=[to_wire_config(each) for each in found])


async def configure(call: Call[NoParameters, wire.NewConfig]) -> Reply[wire.Config]:
    """Create a new version of a config."""
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
            is_strict=None if given.strict is msgspec.UNSET else given.strict,
        )
    return Reply(to_wire_config(made), 201)


async def flush(_call: Call[NoParameters, None]) -> wire.Flushed:
    """Do nothing: every assignment reads the rule under the pool's lock."""
    return wire.Flushed(flushed=0)


def endpoints(db: Pool) -> tuple[Endpoint, ...]:
    """Return the table of this domain's endpoints."""
    api = Api(db, SlotBatcher(db))
    return (
        endpoint(
            "POST", "/api/v1/slots", api.assign, scope="produce",
            summary="Assign a slot to an event",
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
                NDJSON: (wire.NewSlot, wire.Result),
            },
            summary="Assign slots to up to a million events, with one result for each",
        ),
        endpoint(
            "POST", "/api/v1/slots/forecast", show_forecast, scope="read",
            summary="Show when many requests would be scheduled; nothing is booked",
        ),
        endpoint(
            "POST", "/api/v1/slots/reflow", start_reflow, scope="admin",
            summary="Reassign future slots under the present rule; with `dryRun` only count moves",
        ),
        endpoint(
            "GET", "/api/v1/slots/moves", list_moves, scope="read",
            summary="List the moves of reflows, in the order they were made",
        ),
        endpoint(
            "GET", "/api/v1/slots/heatmap", show_heat_map, scope="read",
            summary="Show how full a slot pool is over time",
        ),
        endpoint(
            "GET", "/api/v1/slots/{eventId}", show, scope="read", summary="Show an event's slot"
        ),
        endpoint(
            "DELETE", "/api/v1/slots/{eventId}", remove, scope="produce", statuses=(204,),
            summary="Cancel an event's slot",
        ),
        endpoint(
            "GET", "/admin/rate-limit/config", show_config, scope="admin",
            summary="Show the active version of a slot pool's config",
        ),
        endpoint(
            "POST", "/admin/rate-limit/config", configure, scope="admin", statuses=(201,),
            summary="Create a new version of a config, and the slot pool if it does not exist",
        ),
        endpoint(
            "GET", "/admin/rate-limit/config/versions", list_versions, scope="admin",
            summary="List all versions of a config, the newest first",
        ),
        endpoint(
            "POST", "/admin/rate-limit/cache/flush", flush, scope="admin",
            summary="Do nothing: there is no cache, and config changes take effect at once",
        ),
    )  # fmt: skip


def _cursor(slot: Slot) -> str:
    return f"{instant_text(slot.window_at)}_{slot.position}"


def _place(cursor: str | None) -> tuple[datetime, int]:
    if cursor is None:
        return EPOCH, -1
    window, found, position = cursor.partition("_")
    if not found or not position.isdecimal() or len(position) > 12:
        raise InvalidInput("after", "is not a valid cursor")
    try:
        window_at = datetime.fromisoformat(window)
    except ValueError:
        raise InvalidInput("after", "is not a valid cursor") from None
    if window_at.tzinfo is None:
        raise InvalidInput("after", "is not a valid cursor")
    return window_at, int(position)
