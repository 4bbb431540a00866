"""Validation of a calendar beyond its types: names, times, limits, and that it ever opens. Pure."""

from datetime import datetime, timedelta
from functools import cache
from zoneinfo import available_timezones

from penstock.base.errors import InvalidInput
from penstock.calendar.calendar import ENTRIES_MAX, Calendar, Hours
from penstock.calendar.holidays import is_holiday_set
from penstock.calendar.instant import check_instant
from penstock.calendar.local_time import DAY_MINUTES, is_local_time, minutes_of, span_of
from penstock.calendar.periods import next_before_cut_off, next_open_at

OPEN_WITHIN = timedelta(days=366)  # Finds what opens once a year, in a leap year too.

_NOT_A_PLACE = {"Factory", "localtime"}  # The first is a placeholder, the second differs by host.


def check(calendar: Calendar, *, now: datetime) -> None:
    """Raise InvalidInput with the field of the first invalid value, or if it does not open."""
    check_values(calendar)
    if next_open_at(calendar, now, now + OPEN_WITHIN) is None:
        raise InvalidInput("calendar", f"has no open time in the next {OPEN_WITHIN.days} days")


def check_waiting(calendar: Calendar, *, now: datetime) -> None:
    """Raise InvalidInput as `check` does, and if work that is due when it is closed cannot wait."""
    check(calendar, now=now)
    if calendar.cut_off_policy != "next_open_window":
        raise InvalidInput(
            "calendar.cutOffPolicy", "must be next_open_window: what comes too late waits"
        )
    if next_before_cut_off(calendar, now, now + OPEN_WITHIN) is None:
        raise InvalidInput("calendar.cutOff", "is before all opening times, so nothing is sent")


def check_values(calendar: Calendar) -> None:
    """Raise InvalidInput with the field of the first invalid value, whatever the time is."""
    _check_sizes(calendar)
    if calendar.time_zone not in _time_zones():
        raise InvalidInput(
            "calendar.timeZone", f"{calendar.time_zone!r:.60} is not an IANA time zone"
        )
    for index, hours in enumerate(calendar.hours):
        _check_hours(hours, f"calendar.hours[{index}]")
    for index, name in enumerate(calendar.holidays):
        if not is_holiday_set(name):
            raise InvalidInput(
                f"calendar.holidays[{index}]",
                f"{name!r:.60} is not TARGET2, US-FED, or an ISO 3166 country or subdivision",
            )
    for index, blackout in enumerate(calendar.blackouts):
        check_instant(blackout.from_at, f"calendar.blackouts[{index}].from")
        check_instant(blackout.until_at, f"calendar.blackouts[{index}].until")
        if blackout.until_at <= blackout.from_at:
            raise InvalidInput(f"calendar.blackouts[{index}].until", "must be after from")
    if calendar.cut_off is not None:
        _check_cut_off(calendar, calendar.cut_off)


@cache  # Reads all files of the time zones, for 7 ms.
def _time_zones() -> set[str]:
    return available_timezones() - _NOT_A_PLACE


def _check_sizes(calendar: Calendar) -> None:
    lists = (calendar.hours, calendar.holidays, calendar.closed_days, calendar.blackouts)
    for name, entries in zip(ENTRIES_MAX, lists, strict=True):
        if len(entries) > ENTRIES_MAX[name]:
            raise InvalidInput(f"calendar.{name}", f"has more than {ENTRIES_MAX[name]:,} entries")


def _check_hours(hours: Hours, path: str) -> None:
    if not hours.days:
        raise InvalidInput(f"{path}.days", "must name at least one day")
    _check_local_time(hours.opens, f"{path}.opens")
    _check_local_time(hours.closes, f"{path}.closes")
    if minutes_of(hours.opens) == DAY_MINUTES:
        raise InvalidInput(f"{path}.opens", "must be before 24:00")


def _check_cut_off(calendar: Calendar, cut_off: str) -> None:
    _check_local_time(cut_off, "calendar.cutOff")
    if calendar.hours and minutes_of(cut_off) > max(span_of(hours)[1] for hours in calendar.hours):
        raise InvalidInput("calendar.cutOff", "is after all closing times, so it never applies")


def _check_local_time(text: str, path: str) -> None:
    if not is_local_time(text):
        raise InvalidInput(path, f"{text!r:.60} is not a time of day as HH:MM")
