"""The calendar as it travels: JSON over HTTP and in the database. `check` validates its values."""

from datetime import date, datetime
from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct, field

Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
CutOffPolicy = Literal["next_open_window", "reject", "overbook"]
Instant = Annotated[datetime, Meta(tz=True)]

WEEKDAYS: tuple[Weekday, ...] = get_args(Weekday)  # In the order of date.weekday().
ENTRIES_MAX = {
    "hours": 50,  # Several shifts for each day of the week.
    "holidays": 20,  # More countries than one payment touches.
    "closedDays": 1_000,
    "blackouts": 1_000,  # Each is compared with each period: a year of both takes under a second.
}


class Hours(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Open on these days from `opens` to `closes`; a `closes` not after `opens` is the next day.

    Both are local times as HH:MM; `closes` may be 24:00.
    """

    days: tuple[Weekday, ...]
    opens: str
    closes: str


class Blackout(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Closed from one instant until another, regardless of the hours."""

    from_at: Instant = field(name="from")
    until_at: Instant = field(name="until")


class Calendar(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Without hours it is open around the clock, except on holidays and closed days."""

    time_zone: str
    hours: tuple[Hours, ...] = ()
    holidays: tuple[str, ...] = ()
    closed_days: tuple[date, ...] = ()
    blackouts: tuple[Blackout, ...] = ()
    cut_off: str | None = None
    cut_off_policy: CutOffPolicy = "next_open_window"
