"""Opening periods by local time and holidays, and the validation of calendars."""

import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import InvalidInput
from penstock.calendar.calendar import ENTRIES_MAX, WEEKDAYS, Blackout, Calendar, Hours
from penstock.calendar.check import check
from penstock.calendar.periods import Period, next_open_at, open_periods

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
WORKDAYS = WEEKDAYS[:5]
OFFICE = Hours(days=WORKDAYS, opens="09:00", closes="17:00")
# Clocks there skip and repeat hours at night, at midnight, by half an hour, and once a whole day.
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Havana",
    "Africa/Cairo",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Asia/Kathmandu",
)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def every_day(opens: str, closes: str) -> Hours:
    return Hours(days=WEEKDAYS, opens=opens, closes=closes)


def berlin(*hours: Hours, **more: Any) -> Calendar:
    return Calendar(time_zone="Europe/Berlin", hours=hours, **more)


def opened(calendar: Calendar, day: str) -> list[Period]:
    """Return the periods that open on a local date."""
    noon_at = utc(f"{day}T12:00")
    found = open_periods(calendar, noon_at - 3 * DAY, noon_at + 3 * DAY)
    return [period for period in found if period.day == date.fromisoformat(day)]


def spans(calendar: Calendar, day: str) -> list[tuple[str, str]]:
    """Return when the periods of a local date begin and end, in UTC."""
    return [
        (f"{period.starts_at:%d %H:%M}", f"{period.ends_at:%d %H:%M}")
        for period in opened(calendar, day)
    ]


def is_open(calendar: Calendar, day: str) -> bool:
    return bool(opened(calendar, day))


# ------------------------------------------------------------------------------------- hours


def test_hours_are_local_time_in_summer_and_in_winter() -> None:
    assert spans(berlin(OFFICE), "2026-01-15") == [("15 08:00", "15 16:00")]
    assert spans(berlin(OFFICE), "2026-07-15") == [("15 07:00", "15 15:00")]


def test_a_day_without_hours_is_closed() -> None:
    assert not is_open(berlin(OFFICE), "2026-01-17")


def test_a_calendar_without_hours_is_open_around_the_clock() -> None:
    assert spans(berlin(), "2026-01-17") == [("16 23:00", "17 23:00")]


def test_hours_may_end_on_the_next_day_and_belong_to_the_day_of_opening() -> None:
    night = berlin(Hours(days=("mon",), opens="22:00", closes="06:00"))

    assert spans(night, "2026-01-12") == [("12 21:00", "13 05:00")]
    assert not is_open(night, "2026-01-13")


@pytest.mark.parametrize("closes", ["24:00", "00:00"])
def test_hours_may_end_at_midnight(closes: str) -> None:
    assert spans(berlin(every_day("18:00", closes)), "2026-01-15") == [("15 17:00", "15 23:00")]


def test_hours_that_overlap_or_touch_are_one_period() -> None:
    """Otherwise a slot's window would be split at a boundary that does not exist for users."""
    shifts = berlin(
        every_day("12:00", "15:00"), every_day("09:00", "12:00"), every_day("14:00", "17:00")
    )

    assert spans(shifts, "2026-01-15") == [("15 08:00", "15 16:00")]


def test_hours_apart_are_periods_of_one_day_with_one_cut_off() -> None:
    lunch = berlin(every_day("09:00", "12:00"), every_day("13:00", "17:00"), cut_off="16:30")

    periods = opened(lunch, "2026-01-15")

    assert spans(lunch, "2026-01-15") == [("15 08:00", "15 11:00"), ("15 12:00", "15 16:00")]
    assert {period.cut_off_at for period in periods} == {utc("2026-01-15T15:30")}


def test_hours_that_reach_into_the_next_day_delay_its_opening() -> None:
    """No instant may belong to two days, or a slot would be counted in both."""
    late = berlin(
        Hours(days=("mon",), opens="20:00", closes="10:00"),
        Hours(days=("tue",), opens="09:00", closes="17:00"),
    )

    assert spans(late, "2026-01-12") == [("12 19:00", "13 09:00")]
    assert spans(late, "2026-01-13") == [("13 09:00", "13 16:00")]


def test_a_blackout_splits_a_period_and_may_close_a_whole_day() -> None:
    blackouts = (
        Blackout(from_at=utc("2026-01-15T10:00"), until_at=utc("2026-01-15T11:00")),
        Blackout(from_at=utc("2026-01-15T10:30"), until_at=utc("2026-01-15T12:00")),
        Blackout(from_at=utc("2026-01-16T00:00"), until_at=utc("2026-01-17T00:00")),
    )

    calendar = berlin(OFFICE, blackouts=blackouts)

    assert spans(calendar, "2026-01-15") == [("15 08:00", "15 10:00"), ("15 12:00", "15 16:00")]
    assert not is_open(calendar, "2026-01-16")


def test_a_closed_day_closes_hours_that_begin_on_it_not_hours_from_the_day_before() -> None:
    nights = berlin(every_day("22:00", "06:00"), closed_days=(date(2026, 12, 24),))

    assert spans(nights, "2026-12-23") == [("23 21:00", "24 05:00")]
    assert not is_open(nights, "2026-12-24")


def test_periods_are_clipped_to_the_requested_interval() -> None:
    found = open_periods(berlin(OFFICE), utc("2026-01-15T10:00"), utc("2026-01-16T10:00"))

    assert [(period.starts_at, period.ends_at) for period in found] == [
        (utc("2026-01-15T10:00"), utc("2026-01-15T16:00")),
        (utc("2026-01-16T08:00"), utc("2026-01-16T10:00")),
    ]


# ------------------------------------------------------------------------- next open instant


@pytest.mark.parametrize(
    ("from_at", "expected"),
    [
        ("2026-01-15T10:00", "2026-01-15T10:00"),  # Open already.
        ("2026-01-15T08:00", "2026-01-15T08:00"),  # The opening itself.
        ("2026-01-15T16:00", "2026-01-16T08:00"),  # Closing is exclusive.
        ("2026-01-16T20:00", "2026-01-19T08:00"),  # Over a weekend.
        ("2026-04-02T20:00", "2026-04-07T07:00"),  # Over Easter, into summer time.
    ],
)
def test_the_next_open_instant_is_now_or_the_next_opening(from_at: str, expected: str) -> None:
    calendar = berlin(OFFICE, holidays=("TARGET2",))

    assert next_open_at(calendar, utc(from_at)) == utc(expected)


def test_there_is_no_next_open_instant_if_nothing_opens_before_the_limit() -> None:
    friday_night = utc("2026-01-16T20:00")

    assert next_open_at(berlin(OFFICE), friday_night, friday_night + 2 * DAY) is None


# --------------------------------------------------------------------------- clock changes


def test_an_hour_that_the_clock_skips_has_no_length() -> None:
    """On 29 March 2026 clocks in Berlin go from 02:00 to 03:00, at 01:00 UTC."""
    opens_in_it = berlin(every_day("02:30", "04:00"), cut_off="02:45")
    closes_in_it = berlin(every_day("01:00", "02:30"))
    lies_in_it = berlin(every_day("02:10", "02:50"))

    assert spans(opens_in_it, "2026-03-29") == [("29 01:00", "29 02:00")]
    assert opened(opens_in_it, "2026-03-29")[0].cut_off_at == utc("2026-03-29T01:00")
    assert spans(closes_in_it, "2026-03-29") == [("29 00:00", "29 01:00")]
    assert not is_open(lies_in_it, "2026-03-29")


def test_an_hour_that_the_clock_shows_twice_is_open_twice() -> None:
    """On 25 October 2026 clocks in Berlin show 02:00 at 00:00 UTC and again at 01:00 UTC."""
    calendar = berlin(every_day("02:15", "02:45"), cut_off="02:30")

    assert spans(calendar, "2026-10-25") == [("25 00:15", "25 01:45")]
    assert opened(calendar, "2026-10-25")[0].cut_off_at == utc("2026-10-25T00:30")


def test_a_midnight_that_is_shown_twice_does_not_move_the_end_of_the_day() -> None:
    """In Havana 1 November 2026 has 25 hours; the first of them is part of that day."""
    havana = Calendar(time_zone="America/Havana")

    assert spans(havana, "2026-10-31") == [("31 04:00", "01 04:00")]
    assert spans(havana, "2026-11-01") == [("01 04:00", "02 05:00")]


def test_a_date_that_a_zone_skipped_has_no_periods() -> None:
    """Samoa went from 29 to 31 December 2011."""
    samoa = Calendar(time_zone="Pacific/Apia")

    assert not is_open(samoa, "2011-12-30")
    assert opened(samoa, "2011-12-29")[0].ends_at == opened(samoa, "2011-12-31")[0].starts_at


# ----------------------------------------------------------------------------------- holidays


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        ("2021-12-31", True),  # New Year's Day is a Saturday: nothing moves to Friday.
        ("2022-06-20", False),  # Juneteenth is a Sunday, observed on Monday.
        ("2026-07-03", True),  # Independence Day is a Saturday.
        ("2027-07-05", False),  # Independence Day is a Sunday.
        ("2026-11-26", False),  # Thanksgiving.
        ("2026-11-27", True),
    ],
)
def test_the_federal_reserve_moves_only_sunday_holidays(day: str, *, expected: bool) -> None:
    calendar = Calendar(time_zone="America/New_York", hours=(OFFICE,), holidays=("US-FED",))

    assert is_open(calendar, day) is expected


def test_the_federal_reserve_closes_on_its_eleven_holidays() -> None:
    """As published for 2022, with New Year's Day on a Saturday: ten working days are closed."""
    calendar = Calendar(time_zone="America/New_York", hours=(OFFICE,), holidays=("US-FED",))
    all_days = open_periods(
        msgspec.structs.replace(calendar, holidays=()), utc("2022-01-01"), utc("2023-01-01")
    )

    open_days = open_periods(calendar, utc("2022-01-01"), utc("2023-01-01"))

    off = {period.day for period in all_days} - {period.day for period in open_days}
    assert {f"{day:%m-%d}" for day in off} == {
        *("01-17", "02-21", "05-30", "06-20", "07-04"),
        *("09-05", "10-10", "11-11", "11-24", "12-26"),
    }


def test_target2_closes_on_its_six_holidays() -> None:
    calendar = berlin(holidays=("TARGET2",))

    year = open_periods(calendar, utc("2026-01-01"), utc("2027-01-01"))

    all_days = {date(2026, 1, 1) + number * DAY for number in range(365)}
    off = all_days - {period.day for period in year}
    assert {f"{day:%m-%d}" for day in off} == {
        *("01-01", "04-03", "04-06", "05-01", "12-25", "12-26")
    }


def test_a_subdivision_has_more_holidays_than_its_country() -> None:
    assert is_open(berlin(holidays=("DE",)), "2026-01-06")
    assert not is_open(berlin(holidays=("DE-BY",)), "2026-01-06")
    assert not is_open(berlin(holidays=("DE", "DE-BY")), "2026-10-03")


def test_a_calendar_without_holidays_does_not_import_the_package() -> None:
    """Its import takes several times as long as starting Python."""
    code = (
        "import sys\n"
        "from datetime import UTC, datetime\n"
        "from penstock.calendar.calendar import Calendar\n"
        "from penstock.calendar.check import check\n"
        "check(Calendar(time_zone='UTC'), now=datetime(2026, 1, 1, tzinfo=UTC))\n"
        "sys.exit('holidays' in sys.modules)\n"
    )

    result = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)

    assert result.returncode == 0


# ------------------------------------------------------------------------------ on all calendars

clocks = st.times().map(lambda time: f"{time:%H:%M}")
hours = st.builds(
    Hours,
    days=st.lists(st.sampled_from(WEEKDAYS), min_size=1, unique=True).map(tuple),
    opens=clocks,
    closes=st.one_of(clocks, st.just("24:00")),
)
instants = st.datetimes(datetime(2011, 1, 1), datetime(2031, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - Hypothesis adds the zone.
blackouts = st.builds(
    lambda from_at, lasts: Blackout(from_at=from_at, until_at=from_at + lasts),
    instants,
    st.timedeltas(timedelta(seconds=1), 100 * DAY),
)
calendars = st.builds(
    Calendar,
    time_zone=st.sampled_from(ZONES),
    hours=st.lists(hours, max_size=4).map(tuple),
    blackouts=st.lists(blackouts, max_size=3).map(tuple),
    cut_off=st.one_of(st.none(), clocks),
)


@settings(deadline=None)
@given(calendar=calendars, from_at=instants, lasts=st.timedeltas(HOUR, 30 * DAY))
def test_periods_are_sorted_and_disjoint_and_days_do_not_interleave(
    calendar: Calendar, from_at: datetime, lasts: timedelta
) -> None:
    found = open_periods(calendar, from_at, from_at + lasts)

    edges = [edge for period in found for edge in (period.starts_at, period.ends_at)]
    assert edges == sorted(edges)
    assert all(period.starts_at < period.ends_at for period in found)
    assert all(from_at <= edge <= from_at + lasts for edge in edges)
    assert all(first.day <= second.day for first, second in pairwise(found))


@settings(deadline=None)
@given(
    calendar=calendars, from_at=instants, lasts=st.timedeltas(HOUR, 20 * DAY), cut=st.floats(0, 1)
)
def test_two_adjacent_intervals_give_the_same_periods_as_one(
    calendar: Calendar, from_at: datetime, *, lasts: timedelta, cut: float
) -> None:
    """Periods are computed ahead in chunks, so a chunk must not change what is open."""
    middle_at = from_at + cut * lasts

    whole = open_periods(calendar, from_at, from_at + lasts)
    first = open_periods(calendar, from_at, middle_at)
    second = open_periods(calendar, middle_at, from_at + lasts)

    whole_cut = {
        (max(period.starts_at, start), min(period.ends_at, end), period.day, period.cut_off_at)
        for start, end in ((from_at, middle_at), (middle_at, from_at + lasts))
        for period in whole
        if max(period.starts_at, start) < min(period.ends_at, end)
    }
    assert whole_cut == {
        (period.starts_at, period.ends_at, period.day, period.cut_off_at)
        for period in first + second
    }


@settings(deadline=None)
@given(zone=st.sampled_from(ZONES), from_at=instants, lasts=st.timedeltas(HOUR, 400 * DAY))
def test_around_the_clock_every_instant_is_open_across_clock_changes(
    zone: str, from_at: datetime, lasts: timedelta
) -> None:
    found = open_periods(Calendar(time_zone=zone), from_at, from_at + lasts)

    assert found[0].starts_at == from_at
    assert found[-1].ends_at == from_at + lasts
    assert all(first.ends_at == second.starts_at for first, second in pairwise(found))
    assert len({period.day for period in found}) == len(found)


# ----------------------------------------------------------------------------------- on the wire


def test_a_calendar_is_unchanged_by_a_json_round_trip() -> None:
    text = (
        b'{"timeZone":"Europe/Berlin",'
        b'"hours":[{"days":["mon","fri"],"opens":"09:00","closes":"17:00"}],'
        b'"holidays":["TARGET2"],"closedDays":["2026-12-24"],'
        b'"blackouts":[{"from":"2026-05-01T00:00:00Z","until":"2026-05-02T00:00:00Z"}],'
        b'"cutOff":"16:30","cutOffPolicy":"reject"}'
    )

    calendar = msgspec.json.decode(text, type=Calendar)

    assert msgspec.json.encode(calendar) == text
    check(calendar, now=NEW_YEAR)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b'{"timeZone": "UTC", "hour": []}', "hour"),
        (b'{"timeZone": "UTC", "hours": [{"days": ["monday"]}]}', r"\$\.hours\[0\]\.days\[0\]"),
        (b'{"timeZone": "UTC", "closedDays": ["2026-02-30"]}', r"\$\.closedDays\[0\]"),
        (b'{"timeZone": "UTC", "blackouts": [{"from": "2026-05-01T00:00"}]}', "from"),
        (b'{"timeZone": "UTC", "cutOffPolicy": "drop"}', r"\$\.cutOffPolicy"),
        (b'{"hours": []}', "timeZone"),
    ],
)
def test_decoding_rejects_misspelt_fields_and_values(text: bytes, place: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=place):
        msgspec.json.decode(text, type=Calendar)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("timeZone", {"time_zone": "Mars/Olympus"}),
        ("timeZone", {"time_zone": ""}),
        ("timeZone", {"time_zone": "Europe"}),
        ("timeZone", {"time_zone": "../../etc/passwd"}),
        ("timeZone", {"time_zone": "localtime"}),
        ("hours[0].days", {"hours": (Hours(days=(), opens="09:00", closes="17:00"),)}),
        ("hours[0].opens", {"hours": (every_day("9:00", "17:00"),)}),
        ("hours[0].opens", {"hours": (every_day("24:00", "17:00"),)}),
        ("hours[0].opens", {"hours": (every_day("09:00\n", "17:00"),)}),
        ("hours[0].opens", {"hours": (every_day("\u0660\u0669:00", "17:00"),)}),
        ("hours[1].closes", {"hours": (OFFICE, every_day("09:00", "24:01"))}),
        ("hours[1].closes", {"hours": (OFFICE, every_day("09:00", "17:60"))}),
        ("hours", {"hours": (OFFICE,) * (ENTRIES_MAX["hours"] + 1)}),
        ("holidays[1]", {"holidays": ("DE", "XX")}),
        ("holidays[0]", {"holidays": ("DE-XX",)}),
        ("holidays[0]", {"holidays": ("DE-",)}),
        ("holidays[0]", {"holidays": ("de",)}),
        ("holidays[0]", {"holidays": ("TARGET2-DE",)}),
        ("holidays", {"holidays": ("DE",) * (ENTRIES_MAX["holidays"] + 1)}),
        ("closedDays", {"closed_days": (date(2026, 1, 1),) * (ENTRIES_MAX["closedDays"] + 1)}),
        (
            "blackouts[0].until",
            {"blackouts": (Blackout(from_at=NEW_YEAR, until_at=NEW_YEAR),)},
        ),
        (
            "blackouts",
            {
                "blackouts": (Blackout(from_at=NEW_YEAR, until_at=NEW_YEAR + HOUR),)
                * (ENTRIES_MAX["blackouts"] + 1)
            },
        ),
        ("cutOff", {"cut_off": "noon"}),
        ("cutOff", {"cut_off": "17:30"}),
        (
            "",
            {"blackouts": (Blackout(from_at=NEW_YEAR - DAY, until_at=NEW_YEAR + 400 * DAY),)},
        ),
    ],
)
def test_check_rejects_an_invalid_value_with_its_field(field: str, changes: dict[str, Any]) -> None:
    calendar = msgspec.structs.replace(berlin(OFFICE), **changes)

    with pytest.raises(InvalidInput) as refused:
        check(calendar, now=NEW_YEAR)

    assert refused.value.field == f"calendar.{field}".rstrip(".")


@pytest.mark.parametrize(
    "calendar",
    [
        berlin(),
        berlin(cut_off="24:00"),
        berlin(OFFICE, cut_off="17:00"),
        berlin(OFFICE, cut_off="08:00", cut_off_policy="reject"),
        berlin(every_day("22:00", "06:00"), cut_off="23:30"),
        berlin(holidays=("TARGET2", "US-FED", "DE", "DE-BY", "GB-SCT")),
    ],
)
def test_check_accepts_a_valid_calendar(calendar: Calendar) -> None:
    check(calendar, now=NEW_YEAR)
