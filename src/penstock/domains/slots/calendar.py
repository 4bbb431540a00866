"""When a pool is open: hours in a time zone, holidays, closed days, blackouts and a cut-off. Pure.

A calendar travels as JSON, over HTTP and in the database; `check` refuses what decoding cannot.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Annotated, Literal, get_args
from zoneinfo import ZoneInfo, available_timezones

from msgspec import Meta, Struct, field

from penstock.base.errors import InvalidInput
from penstock.domains.slots.slot import BEGINNING

Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
CutOffPolicy = Literal["next_open_window", "reject", "overbook"]
Instant = Annotated[datetime, Meta(tz=True)]

WEEKDAYS: tuple[Weekday, ...] = get_args(Weekday)  # In the order of date.weekday().
DAY = timedelta(days=1)
DAY_MINUTES = 24 * 60
END_AT = datetime(2200, 1, 1, tzinfo=UTC)  # No calendar is asked about later instants.
OPEN_WITHIN = 366 * DAY  # Finds what opens once a year, in a leap year too.
ENTRIES_MAX = {
    "hours": 50,  # A handful of shifts for each day of the week.
    "holidays": 20,  # More countries than one payment touches.
    "closedDays": 1_000,
    "blackouts": 1_000,  # Each is compared with each period: a year of both stays below a second.
}

_CLOCK = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])|24:00")
_NO_PLACES = {"Factory", "localtime"}  # The first is no zone, the second another on each machine.
_YEARS_CACHED = 1_000  # All sets of one calendar for fifty years.


class Hours(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Open on these days from `opens` to `closes`, which is on the next day if it is not later.

    Both are HH:MM on the wall; `closes` may be 24:00.
    """

    days: tuple[Weekday, ...]
    opens: str
    closes: str


class Blackout(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Closed from one instant until another, whatever the hours say."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Open from `starts_at` until just before `ends_at`; `day` is the local date of opening."""

    starts_at: datetime
    ends_at: datetime
    day: date
    cut_off_at: datetime | None


def open_periods(calendar: Calendar, from_at: datetime, until_at: datetime) -> list[Period]:
    """Return the periods between two instants, in order and disjoint, cut where they stick out."""
    return list(periods(calendar, from_at, until_at))


def periods(calendar: Calendar, from_at: datetime, until_at: datetime = END_AT) -> Iterator[Period]:
    """Yield what `open_periods` returns, for a caller who cannot say how far he will have to look.

    Where one day's hours reach into the next day's, the next day begins when they end.
    """
    zone = ZoneInfo(calendar.time_zone)
    over_at = from_at.astimezone(UTC)
    # Hours that began the day before reach into the first day, cut by those of the day before that.
    day = from_at.astimezone(zone).date() - 2 * DAY
    while _instant(zone, day, 0) < until_at:
        for period in _periods_of(calendar, zone, day):
            starts_at = max(period.starts_at, over_at)
            ends_at = min(period.ends_at, until_at.astimezone(UTC))
            yield from _without(
                calendar.blackouts, replace(period, starts_at=starts_at, ends_at=ends_at)
            )
            over_at = max(over_at, period.ends_at)
        day += DAY


def check(calendar: Calendar, *, now: datetime) -> None:
    """Raise InvalidInput with the field of the first thing that cannot be meant."""
    for name, entries in zip(
        ENTRIES_MAX,
        (calendar.hours, calendar.holidays, calendar.closed_days, calendar.blackouts),
        strict=True,
    ):
        if len(entries) > ENTRIES_MAX[name]:
            raise InvalidInput(f"calendar.{name}", f"has more than {ENTRIES_MAX[name]:,} entries")
    if calendar.time_zone not in available_timezones() - _NO_PLACES:
        raise InvalidInput("calendar.timeZone", f"{calendar.time_zone!r:.60} is no IANA time zone")
    for index, hours in enumerate(calendar.hours):
        _check_hours(hours, f"calendar.hours[{index}]")
    for index, name in enumerate(calendar.holidays):
        if not _is_known(name):
            raise InvalidInput(
                f"calendar.holidays[{index}]",
                f"{name!r:.60} is not TARGET2, US-FED, or a country or part of one as in ISO 3166",
            )
    for index, blackout in enumerate(calendar.blackouts):
        check_instant(blackout.from_at, f"calendar.blackouts[{index}].from")
        check_instant(blackout.until_at, f"calendar.blackouts[{index}].until")
        if blackout.until_at <= blackout.from_at:
            raise InvalidInput(f"calendar.blackouts[{index}].until", "must be after from")
    if calendar.cut_off is not None:
        _check_cut_off(calendar, calendar.cut_off)
    if next(periods(calendar, now, now + OPEN_WITHIN), None) is None:
        raise InvalidInput("calendar", f"is never open within {OPEN_WITHIN.days} days from now")


def check_instant(at: datetime, path: str) -> None:
    """Raise InvalidInput for an instant without a zone, or outside of the years with windows.

    The driver takes both ends of Python's calendar for infinity, and fails a little beyond them.
    """
    if at.tzinfo is None:
        raise InvalidInput(path, "has no time zone")
    if not BEGINNING <= at <= END_AT:
        raise InvalidInput(path, "must be from 1970 to 2199")


def _check_hours(hours: Hours, path: str) -> None:
    if not hours.days:
        raise InvalidInput(f"{path}.days", "must name at least one day")
    _check_clock(hours.opens, f"{path}.opens")
    _check_clock(hours.closes, f"{path}.closes")
    if _minutes(hours.opens) == DAY_MINUTES:
        raise InvalidInput(f"{path}.opens", "must be before 24:00")


def _check_cut_off(calendar: Calendar, cut_off: str) -> None:
    _check_clock(cut_off, "calendar.cutOff")
    if calendar.hours and _minutes(cut_off) > max(_span(hours)[1] for hours in calendar.hours):
        raise InvalidInput("calendar.cutOff", "is after all closing times, so it never applies")


def _check_clock(text: str, path: str) -> None:
    if not _CLOCK.fullmatch(text):
        raise InvalidInput(path, f"{text!r:.60} is no time of the day as HH:MM")


# ----------------------------------------------------------------------------------- one day


def _periods_of(calendar: Calendar, zone: ZoneInfo, day: date) -> Iterator[Period]:
    """Yield the hours that open on a day, merged where they touch; blackouts are not looked at."""
    if _is_closed(calendar, day):
        return
    cut_off_at = None
    if calendar.cut_off is not None:
        cut_off_at = _instant(zone, day, _minutes(calendar.cut_off))
    spans = sorted(
        _span(hours) for hours in calendar.hours if WEEKDAYS[day.weekday()] in hours.days
    )
    for opens, closes in _merged(spans if calendar.hours else [(0, DAY_MINUTES)]):
        # A closing time that the clock shows twice is the second. The end of a day is shown once:
        # taken as the second midnight it would claim an hour that belongs to the next day.
        is_clock_time = closes != DAY_MINUTES
        yield Period(
            starts_at=_instant(zone, day, opens),
            ends_at=_instant(zone, day, closes, fold=int(is_clock_time)),
            day=day,
            cut_off_at=cut_off_at,
        )


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for opens, closes in spans:
        if merged and opens <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], closes))
        else:
            merged.append((opens, closes))
    return merged


def _without(blackouts: tuple[Blackout, ...], period: Period) -> list[Period]:
    """Return what the blackouts leave of a period; nothing, if it ends before it starts."""
    left = [period]
    for hole in blackouts:
        if hole.from_at >= period.ends_at or hole.until_at <= period.starts_at:
            continue
        left = [
            piece
            for part in left
            for piece in (
                replace(part, ends_at=min(part.ends_at, hole.from_at.astimezone(UTC))),
                replace(part, starts_at=max(part.starts_at, hole.until_at.astimezone(UTC))),
            )
        ]
    return [part for part in left if part.starts_at < part.ends_at]


def _span(hours: Hours) -> tuple[int, int]:
    """Return opening and closing in minutes after the midnight that begins the day of opening."""
    opens, closes = _minutes(hours.opens), _minutes(hours.closes)
    return opens, closes if closes > opens else closes + DAY_MINUTES


def _minutes(clock: str) -> int:
    hours, minutes = clock.split(":")
    return int(hours) * 60 + int(minutes)


def _instant(zone: ZoneInfo, day: date, minutes: int, *, fold: int = 0) -> datetime:
    """Return when a wall clock shows a time; one that it skips is the instant of the skip."""
    wall = datetime.combine(day, time.min, tzinfo=zone) + timedelta(minutes=minutes)
    at = wall.replace(fold=fold).astimezone(UTC)
    if at.astimezone(zone) == wall:  # In one zone this compares what the clocks show.
        return at
    # Read with the offset after the skip, a skipped time lies before it; and the other way round.
    lowest, highest = (wall.replace(fold=each).astimezone(UTC) for each in (1, 0))
    offset = lowest.astimezone(zone).utcoffset()
    seconds = bisect_left(
        range((highest - lowest) // timedelta(seconds=1)),
        1,
        key=lambda second: (
            (lowest + timedelta(seconds=second)).astimezone(zone).utcoffset() != offset
        ),
    )
    return lowest + timedelta(seconds=seconds)


# ---------------------------------------------------------------------------------- holidays


def _is_closed(calendar: Calendar, day: date) -> bool:
    return day in calendar.closed_days or any(
        day in _holidays_of(name, day.year) for name in calendar.holidays
    )


@lru_cache(maxsize=_YEARS_CACHED)
def _holidays_of(name: str, year: int) -> frozenset[date]:
    import holidays  # noqa: PLC0415 - With the first set it takes 0.1 s and 15 MB.

    match name.partition("-"):
        case "TARGET2", _, _:
            return frozenset(holidays.financial_holidays("XECB", years=year))
        case "US", _, "FED":
            # The package moves a Saturday's holiday to Friday, as offices do. The Federal Reserve
            # moves only a Sunday's, to Monday, and is open on that Friday.
            days = frozenset(holidays.country_holidays("US", years=year, observed=False))
            return days | {day + DAY for day in days if WEEKDAYS[day.weekday()] == "sun"}
        case country, _, part:
            return frozenset(holidays.country_holidays(country, subdiv=part or None, years=year))


def _is_known(name: str) -> bool:
    import holidays  # noqa: PLC0415 - As above.

    if name in {"TARGET2", "US-FED"}:
        return True
    country, dash, part = name.partition("-")
    parts = holidays.list_supported_countries(include_aliases=False).get(country)
    return parts is not None and (part in parts if dash else True)
