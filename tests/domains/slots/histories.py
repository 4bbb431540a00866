"""Random histories of slots: few events, small windows and short hours, so that they collide."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from penstock.calendar.calendar import WEEKDAYS, Blackout, Calendar, Hours
from tests.domains.slots.oracle import Rule

Step = tuple[str, dict[str, Any]]  # A method of the machine, and its arguments.

START = datetime(2030, 1, 1, 12, tzinfo=UTC)  # A Tuesday.
MICROSECOND = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
STEPS_MIN, STEPS_MAX = 10, 40

# Windows of seconds with few cells, hours of minutes: windows and days are soon full.
some_pool = st.sampled_from(["left", "left", "left", "right"])
some_event = st.integers(0, 30).map(lambda number: f"event-{number}")
some_size = st.sampled_from([0.5, 1, 2, 3, 4, 7, 20, 45, 60, 90, 600]).map(
    lambda seconds: timedelta(seconds=seconds)
)
some_capacity = st.integers(1, 6)
some_spacing = st.sampled_from(["even", "even", "even", "random"])
some_horizon = st.sampled_from([DAY, DAY, 2 * DAY])
some_strictness = st.sampled_from([False, False, True])
some_zone = st.sampled_from(["UTC", "Etc/GMT-12", "Asia/Kolkata"])  # The second: midnight at START.
some_days = st.sampled_from([WEEKDAYS, WEEKDAYS, WEEKDAYS, WEEKDAYS[1:4:2], WEEKDAYS[2:3]])
some_instant = st.builds(
    lambda quarters, micros: START + quarters * SECOND / 4 + micros * MICROSECOND,
    st.integers(-40, 1200),
    st.sampled_from([0, 0, 0, 1, -1]),
)
some_blackout = st.builds(
    lambda from_at, quarters: Blackout(from_at=from_at, until_at=from_at + quarters * SECOND / 4),
    some_instant,
    st.one_of(st.integers(1, 12), st.integers(1, 600)),
)
some_offset = st.one_of(
    st.sampled_from([-60, -1, 0, 0, 0, 5, 30, 60, 90, 120, 180, 300]).map(lambda s: s * SECOND),
    st.integers(0, 60).map(lambda quarters: quarters * SECOND / 4),
    st.integers(-3, 200_000_000).map(lambda micros: micros * MICROSECOND),
    st.sampled_from([-MINUTE, 0 * SECOND, SECOND, MINUTE]).map(lambda some: DAY + some),
    st.sampled_from([2 * DAY, 2 * DAY + SECOND, 30 * DAY]),
)
some_near_offset = st.one_of(
    st.just(0 * SECOND), st.integers(-20, 200).map(lambda quarters: quarters * SECOND / 4)
)


@st.composite
def calendars(draw: st.DrawFn) -> Calendar:
    """Open for a few minutes around START, in local times of a zone."""
    zone = ZoneInfo(draw(some_zone))

    def clock(minutes: int) -> str:
        return (START + minutes * MINUTE).astimezone(zone).strftime("%H:%M")

    opens = draw(st.lists(st.tuples(st.integers(-2, 5), st.integers(1, 4)), max_size=3))
    cut_off = draw(st.one_of(st.none(), st.integers(-1, 6)))
    today = START.astimezone(zone).date()
    return Calendar(
        time_zone=zone.key,
        hours=tuple(
            Hours(days=draw(some_days), opens=clock(start), closes=clock(start + length))
            for start, length in opens
        ),
        closed_days=draw(st.sampled_from([(), (), (), (today,), (today + DAY,)])),
        blackouts=tuple(draw(st.lists(some_blackout, max_size=3))),
        cut_off=None if cut_off is None else clock(cut_off),
        cut_off_policy=draw(st.sampled_from(["next_open_window", "reject", "overbook"])),
    )


some_calendar = st.one_of(st.none(), calendars())
some_rule = st.builds(
    Rule,
    window_size=some_size,
    max_per_window=some_capacity,
    spacing=some_spacing,
    calendar=some_calendar,
    horizon=some_horizon,
    is_strict=some_strictness,
)
some_cells = st.one_of(
    st.fixed_dictionaries({"max_per_window": some_capacity}),
    st.fixed_dictionaries({"window_size": some_size}),
)
some_change = st.fixed_dictionaries(
    {},
    optional={
        "max_per_window": some_capacity,
        "window_size": some_size,
        "spacing": some_spacing,
        "calendar": some_calendar,
        "horizon": some_horizon,
        "is_strict": some_strictness,
    },
)


def _step(method: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.tuples(st.just(method), st.fixed_dictionaries(arguments))


_assign = [
    _step("assign_one", name=some_pool, event=some_event, offset=some_offset),
    _step(
        "assign_batch",
        name=some_pool,
        wishes=st.lists(st.tuples(some_event, some_offset), min_size=1, max_size=12),
    ),
    _step("assign_burst", name=some_pool, offset=some_near_offset, count=st.integers(2, 25)),
    _step("assign_burst", name=some_pool, offset=some_near_offset, count=st.integers(2, 25)),
    _step("assign_again", name=some_pool, number=st.integers(0, 40), shift=st.integers(0, 1)),
]
_change = [
    _step("change", name=some_pool, fields=some_cells),
    _step("change", name=some_pool, fields=some_change),
]
_rest = [
    _step("cancel_one", number=st.integers(0, 60), is_repeated=st.booleans()),
    _step("look_ahead", name=some_pool, count=st.integers(1, 60), offset=some_offset),
    _step("reflow", name=some_pool, offset=some_near_offset, is_dry_run=st.booleans()),
    _step("wait", seconds=st.sampled_from([0.25, 1, 1, 3, 10, 60, 150, 86_400])),
]
histories = st.lists(st.one_of(*_assign, *_change, *_rest), min_size=STEPS_MIN, max_size=STEPS_MAX)
