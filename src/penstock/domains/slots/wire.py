"""What goes over HTTP, as types, in the names of the rate limiter's own API.

Input refuses unknown fields. A field that is UNSET was not given, which is not the same as null.
"""

from datetime import datetime, timedelta
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from penstock.domains.slots.assign import EVENT_ID_LENGTH_MAX
from penstock.domains.slots.calendar import Calendar
from penstock.domains.slots.config import DEFAULT, MAX_PER_WINDOW, NAME_LENGTH_MAX, Spacing
from penstock.domains.slots.forecast import COUNT_MAX
from penstock.domains.slots.inspect import BUCKETS_MAX

PAGE_MAX = 1_000  # Enough for any script, and still one short query.

Instant = Annotated[datetime, Meta(tz=True)]
InstantText = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
EventId = Annotated[str, Meta(min_length=1, max_length=EVENT_ID_LENGTH_MAX)]
ConfigName = Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH_MAX)]
Limit = Annotated[int, Meta(ge=1, le=PAGE_MAX)]
Cursor = Annotated[str, Meta(description="The `next` of the page before.", max_length=64)]


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
    after: Annotated[str, Meta(pattern="^[0-9]{1,18}$")] | None = None
    limit: Limit = 100


class HeatMapQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Which stretch of time, in how many buckets."""

    config_name: ConfigName = DEFAULT
    from_: Instant = field(name="from")
    until: Instant
    buckets: Annotated[int, Meta(ge=1, le=BUCKETS_MAX)] = 60


class ConfigQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Which config."""

    name: ConfigName = DEFAULT


# ----------------------------------------------------------------------------------- bodies


class NewSlot(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """An event that wants a slot at or after a time."""

    event_id: EventId
    config_name: ConfigName = DEFAULT
    requested_time: Instant


class NewForecast(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """How many would want a slot, from when on."""

    config_name: ConfigName = DEFAULT
    count: Annotated[int, Meta(ge=1, le=COUNT_MAX)]
    from_: Instant = field(name="from")


class NewReflow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """What to lay out anew. Slots before `freezeUntil`, or before now, stay where they are."""

    config_name: ConfigName = DEFAULT
    freeze_until: Instant | None = None
    dry_run: bool = True


class NewConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A new version of a config; what is left out stays as it is, or is default."""

    config_name: ConfigName
    max_per_window: Annotated[int, Meta(ge=1, le=MAX_PER_WINDOW)]
    window_size: timedelta
    spacing: Spacing | UnsetType = UNSET
    horizon: timedelta | UnsetType = UNSET
    calendar: Calendar | UnsetType | None = UNSET


# ---------------------------------------------------------------------------------- answers


class Assigned(Struct, frozen=True, kw_only=True, rename="camel"):
    """When an event is scheduled, and how long after the time that it asked for."""

    event_id: str
    scheduled_time: InstantText
    delay_ms: int


class Slot(Struct, frozen=True, kw_only=True, rename="camel"):
    """All that is known of a slot."""

    event_id: str
    config_name: str
    requested_time: InstantText
    scheduled_time: InstantText
    delay_ms: int
    window_start: InstantText
    config_id: int
    created_at: InstantText


class SlotPage(Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of slots by window and place; `next` is the cursor of the page behind it."""

    slots: list[Slot]
    next: str | None


class Result(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What became of one request of a batch, by its place in it."""

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
    detail: str | None = None


class Forecast(Struct, frozen=True, kw_only=True, rename="camel"):
    """The slots that they would get; nothing is booked."""

    config_name: str
    count: int
    first: InstantText
    last: InstantText
    windows_used: int


class Reflow(Struct, frozen=True, kw_only=True, rename="camel"):
    """What was moved, or, in a dry run, would be."""

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
    """A slot that a reflow has moved."""

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
    """A stretch of time: slots there are, and slots that are taken."""

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
    effective_from: InstantText
    active: bool
    created_at: InstantText
    created_by: str


class Configs(Struct, frozen=True, kw_only=True, rename="camel"):
    """Versions of a config, newest first."""

    configs: list[Config]


class Flushed(Struct, frozen=True, kw_only=True, rename="camel"):
    """Nothing is cached, so there is never anything to flush."""

    flushed: int
