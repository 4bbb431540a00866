"""The types of the REST API, with the field names of the rate limiter that slots replace.

Input rejects unknown fields. UNSET means that a field was omitted, which is not null.
"""

from datetime import datetime, timedelta
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from penstock.calendar.calendar import Calendar
from penstock.contract.paging import Limit
from penstock.domains.slots import assign, config, forecast, inspect, reflow, slot
from penstock.domains.slots.assign import EVENT_ID_LENGTH_MAX
from penstock.domains.slots.config import DEFAULT, MAX_PER_WINDOW, NAME_LENGTH_MAX, Spacing
from penstock.domains.slots.forecast import COUNT_MAX
from penstock.domains.slots.inspect import BUCKETS_MAX
from penstock.domains.slots.slot import MILLISECOND, instant_text

Instant = Annotated[datetime, Meta(tz=True)]
InstantText = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
EventId = Annotated[str, Meta(min_length=1, max_length=EVENT_ID_LENGTH_MAX)]
ConfigName = Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH_MAX)]
Cursor = Annotated[str, Meta(description="The `next` of the previous page.", max_length=64)]


# ------------------------------------------------------------------------------- parameters


class EventRef(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Which event."""

    event_id: EventId


class SlotQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Which page of a pool's slots: scheduled and created from one instant until another."""

    config_name: ConfigName = DEFAULT
    from_: Instant | None = field(name="from", default=None)
    until: Instant | None = None
    created_from: Instant | None = None
    after: Cursor | None = None
    limit: Limit = 100


class MoveQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Which page of moves, of all reflows or of one."""

    reflow_id: Annotated[int, Meta(ge=1, le=2**63 - 1)] | None = None
    after: str | None = None
    limit: Limit = 100


class HeatMapQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Which interval, in how many buckets."""

    config_name: ConfigName = DEFAULT
    from_: Instant = field(name="from")
    until: Instant
    buckets: Annotated[int, Meta(ge=1, le=BUCKETS_MAX)] = 60


class ConfigQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Which config."""

    name: ConfigName = DEFAULT


# ----------------------------------------------------------------------------------- bodies


class NewSlot(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A request for a slot at or after a time."""

    event_id: EventId
    config_name: ConfigName = DEFAULT
    requested_time: Instant


class NewForecast(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """How many slots to forecast, from which time on."""

    config_name: ConfigName = DEFAULT
    count: Annotated[int, Meta(ge=1, le=COUNT_MAX)]
    from_: Instant = field(name="from")


class NewReflow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Which slots to reassign. Slots before `freezeUntil`, or before now, stay."""

    config_name: ConfigName = DEFAULT
    freeze_until: Instant | None = None
    dry_run: bool = True


class NewConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A new version of a config; omitted fields keep their value, or the default."""

    config_name: ConfigName
    max_per_window: Annotated[int, Meta(ge=1, le=MAX_PER_WINDOW)]
    window_size: timedelta
    spacing: Spacing | UnsetType = UNSET
    horizon: timedelta | UnsetType = UNSET
    calendar: Calendar | UnsetType | None = UNSET
    strict: bool | UnsetType = UNSET


# ---------------------------------------------------------------------------------- answers


class Assigned(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """When an event is scheduled, and how long after the requested time.

    `existing` means that the event had this slot before; then `configName` and `requestedTime` are
    those of the request that booked it, from which the delay counts.
    """

    event_id: str
    scheduled_time: InstantText
    delay_ms: int
    outcome: Literal["assigned", "existing"]
    config_name: str | None = None
    requested_time: InstantText | None = None


class Slot(Struct, frozen=True, kw_only=True, rename="camel"):
    """A slot in full."""

    event_id: str
    config_name: str
    requested_time: InstantText
    scheduled_time: InstantText
    delay_ms: int
    window_start: InstantText
    config_id: int
    created_at: InstantText


class SlotPage(Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of slots by window and position; `next` is the cursor of the following page."""

    slots: list[Slot]
    next: str | None


class Result(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The result of one request of a batch; `index` is its position in the batch.

    A slot that was booked before has `configName` and `requestedTime`, those it was booked with.
    """

    index: int
    outcome: Literal[
        "assigned",
        "existing",
        "conflict",
        "beyond_horizon",
        "after_cut_off",
        "day_full",
        "exhausted",
        "unknown_config",
        "invalid",
    ]
    event_id: str | None = None
    scheduled_time: InstantText | None = None
    delay_ms: int | None = None
    config_name: str | None = None
    requested_time: InstantText | None = None
    detail: str | None = None


class Forecast(Struct, frozen=True, kw_only=True, rename="camel"):
    """The slots that the requests would get; nothing is booked."""

    config_name: str
    count: int
    first: InstantText
    last: InstantText
    windows_used: int


class Reflow(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a reflow moved, or, in a dry run, would move."""

    config_name: str
    dry_run: bool
    reflow_id: int | None
    frozen_until: InstantText
    considered: int
    moved: int
    last_before: InstantText | None
    last_after: InstantText | None
    longest_delay_ms: int | None


class Move(Struct, frozen=True, kw_only=True, rename="camel"):
    """A slot that a reflow moved."""

    reflow_id: int
    event_id: str
    config_name: str
    moved_from: InstantText
    moved_to: InstantText
    moved_at: InstantText


class MovePage(Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of moves in the order they were made."""

    moves: list[Move]
    next: str | None


class Bucket(Struct, frozen=True, kw_only=True, rename="camel"):
    """An interval of a heat map: its number of slots, and how many are taken."""

    start: InstantText
    capacity: int
    booked: int


class HeatMap(Struct, frozen=True, kw_only=True, rename="camel"):
    """How full a pool is over time."""

    config_name: str
    buckets: list[Bucket]


class Config(Struct, frozen=True, kw_only=True, rename="camel"):
    """A version of a config."""

    config_id: int
    config_name: str
    version: int
    max_per_window: int
    window_size: timedelta
    spacing: Spacing
    horizon: timedelta
    calendar: Calendar | None
    strict: bool
    effective_from: InstantText
    active: bool
    created_at: InstantText
    created_by: str


class Configs(Struct, frozen=True, kw_only=True, rename="camel"):
    """Versions of a config, newest first."""

    configs: list[Config]


class Flushed(Struct, frozen=True, kw_only=True, rename="camel"):
    """Always zero: nothing is cached."""

    flushed: int


# ------------------------------------------------------------------------- from the domain


def to_wire_assigned(given: assign.Assigned) -> Assigned:
    """Return the answer to a request that has a slot."""
    found = given.slot
    assert found is not None, "a request without a slot is answered with an error"
    is_new = given.outcome == "assigned"
    return Assigned(
        event_id=found.event_id,
        scheduled_time=instant_text(found.scheduled_at),
        delay_ms=found.delay_ms,
        outcome="assigned" if is_new else "existing",
        config_name=None if is_new else found.pool,
        requested_time=None if is_new else instant_text(found.requested_at),
    )


def to_wire_slot(found: slot.Slot) -> Slot:
    """Return a slot in full."""
    return Slot(
        event_id=found.event_id,
        config_name=found.pool,
        requested_time=instant_text(found.requested_at),
        scheduled_time=instant_text(found.scheduled_at),
        delay_ms=found.delay_ms,
        window_start=instant_text(found.window_at),
        config_id=found.config_id,
        created_at=instant_text(found.created_at),
    )


def to_wire_config(found: config.Config) -> Config:
    """Return one version of a pool's rule."""
    return Config(
        config_id=found.config_id,
        config_name=found.pool,
        version=found.version,
        max_per_window=found.max_per_window,
        window_size=found.window_size,
        spacing=found.spacing,
        horizon=found.horizon,
        calendar=found.calendar,
        strict=found.is_strict,
        effective_from=instant_text(found.effective_at),
        active=found.is_active,
        created_at=instant_text(found.created_at),
        created_by=found.created_by,
    )


def to_wire_forecast(pool: str, count: int, found: forecast.Forecast) -> Forecast:
    """Return a forecast."""
    return Forecast(
        config_name=pool,
        count=count,
        first=instant_text(found.first_at),
        last=instant_text(found.last_at),
        windows_used=found.windows,
    )


def to_wire_reflow(pool: str, done: reflow.Reflow, *, is_dry_run: bool) -> Reflow:
    """Return the result of a reflow or of its dry run."""
    delay = done.longest_delay
    return Reflow(
        config_name=pool,
        dry_run=is_dry_run,
        reflow_id=done.reflow_id,
        frozen_until=instant_text(done.frozen_until),
        considered=done.considered,
        moved=done.moved,
        last_before=None if done.last_before is None else instant_text(done.last_before),
        last_after=None if done.last_after is None else instant_text(done.last_after),
        longest_delay_ms=None if delay is None else delay // MILLISECOND,
    )


def to_wire_move(found: inspect.Move) -> Move:
    """Return one move of a reflow."""
    return Move(
        reflow_id=found.reflow_id,
        event_id=found.event_id,
        config_name=found.pool,
        moved_from=instant_text(found.moved_from),
        moved_to=instant_text(found.moved_to),
        moved_at=instant_text(found.moved_at),
    )
