"""Local times (`HH:MM`), and the instants at which the clocks of a zone show them. Pure."""

import re
from bisect import bisect_left
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from penstock.calendar.calendar import Hours

DAY_MINUTES = 24 * 60

_LOCAL_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])|24:00")


def is_local_time(text: str) -> bool:
    """Say whether a text is a time of day from 00:00 to 24:00."""
    return _LOCAL_TIME.fullmatch(text) is not None


def minutes_of(text: str) -> int:
    """Return a local time in minutes after midnight."""
    hours, minutes = text.split(":")
    return int(hours) * 60 + int(minutes)


def span_of(hours: Hours) -> tuple[int, int]:
    """Return opening and closing in minutes after the midnight that begins the opening day."""
    opens, closes = minutes_of(hours.opens), minutes_of(hours.closes)
    return opens, closes if closes > opens else closes + DAY_MINUTES


def instant_of(zone: ZoneInfo, day: date, minutes: int, *, fold: int = 0) -> datetime:
    """Return when clocks in a zone show a time; for a skipped time, the instant of the skip."""
    wall = datetime.combine(day, time.min, tzinfo=zone) + timedelta(minutes=minutes)
    at = wall.replace(fold=fold).astimezone(UTC)
    if at.astimezone(zone) == wall:  # Within one zone Python compares local times.
        return at
    # Read with the offset after the skip, a skipped time lies before the skip, and vice versa.
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
