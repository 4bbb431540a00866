"""Opening periods of a calendar: the intervals in which it is open. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from penstock.calendar.calendar import WEEKDAYS, Blackout, Calendar
from penstock.calendar.holidays import holidays_of
from penstock.calendar.instant import END_AT
from penstock.calendar.local_time import DAY_MINUTES, instant_of, minutes_of, span_of

DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Open from `starts_at` until just before `ends_at`; `day` is the local date of opening."""

    starts_at: datetime
    ends_at: datetime
    day: date
    cut_off_at: datetime | None


def next_open_at(
    calendar: Calendar, from_at: datetime, until_at: datetime = END_AT
) -> datetime | None:
    """Return the first open instant in [from_at, until_at), which may be `from_at` itself."""
    period = next(periods(calendar, from_at, until_at), None)
    return None if period is None else period.starts_at


def next_before_cut_off(
    calendar: Calendar, from_at: datetime, until_at: datetime
) -> datetime | None:
    """Return the first instant in [from_at, until_at) that is open and before its day's cut-off."""
    for period in periods(calendar, from_at, until_at):
        if period.cut_off_at is None or period.starts_at < period.cut_off_at:
            return period.starts_at
    return None


def open_periods(calendar: Calendar, from_at: datetime, until_at: datetime) -> list[Period]:
    """Return the periods between two instants, sorted, disjoint, and clipped to them."""
    return list(periods(calendar, from_at, until_at))


def periods(calendar: Calendar, from_at: datetime, until_at: datetime = END_AT) -> Iterator[Period]:
    """Yield what `open_periods` returns, one at a time, for a search without a known end.

    Where one day's hours reach into the next day's, the next day begins when they end.
    """
    zone = ZoneInfo(calendar.time_zone)
    covered_until = from_at.astimezone(UTC)
    # Hours of the previous day may reach into the first day, and be cut by those of the day before.
    day = from_at.astimezone(zone).date() - 2 * DAY
    while instant_of(zone, day, 0) < until_at:
        for period in _periods_of(calendar, zone, day):
            starts_at = max(period.starts_at, covered_until)
            ends_at = min(period.ends_at, until_at.astimezone(UTC))
            yield from _without(
                calendar.blackouts, replace(period, starts_at=starts_at, ends_at=ends_at)
            )
            covered_until = max(covered_until, period.ends_at)
        day += DAY


def _periods_of(calendar: Calendar, zone: ZoneInfo, day: date) -> Iterator[Period]:
    """Yield the hours that open on a day, merged where they touch, before blackouts apply."""
    if _is_closed(calendar, day):
        return
    cut_off_at = None
    if calendar.cut_off is not None:
        cut_off_at = instant_of(zone, day, minutes_of(calendar.cut_off))
    spans = sorted(
        span_of(hours) for hours in calendar.hours if WEEKDAYS[day.weekday()] in hours.days
    )
    for opens, closes in _merged(spans if calendar.hours else [(0, DAY_MINUTES)]):
        # A closing time that clocks show twice means the second showing. The end of the day is
        # the first midnight: the second would claim an hour that belongs to the next day.
        is_clock_time = closes != DAY_MINUTES
        yield Period(
            starts_at=instant_of(zone, day, opens),
            ends_at=instant_of(zone, day, closes, fold=int(is_clock_time)),
            day=day,
            cut_off_at=cut_off_at,
        )


def _is_closed(calendar: Calendar, day: date) -> bool:
    return day in calendar.closed_days or any(
        day in holidays_of(name, day.year) for name in calendar.holidays
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
    """Return what the blackouts leave of a period; nothing if it ends before it starts."""
    left = [period]
    for blackout in blackouts:
        if blackout.from_at >= period.ends_at or blackout.until_at <= period.starts_at:
            continue
        left = [
            piece
            for part in left
            for piece in (
                replace(part, ends_at=min(part.ends_at, blackout.from_at.astimezone(UTC))),
                replace(part, starts_at=max(part.starts_at, blackout.until_at.astimezone(UTC))),
            )
        ]
    return [part for part in left if part.starts_at < part.ends_at]
