"""`penstock slots` on a real database: output, bookings, and errors."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.domains.slots.commands.chart import Column, Span, columns_of, draw, span_of
from penstock.domains.slots.commands.typed_options import lasting
from penstock.domains.slots.inspect import Bucket
from penstock.domains.slots.slot import instant_text
from penstock.postgres.pool import Pool
from tests.cli.conftest import Cli
from tests.cli.output import answer, answers, record, refused

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
# Noon of a future day, within every horizon.
NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) + timedelta(days=2)


def at(delay: timedelta = timedelta(0)) -> str:
    return instant_text(NOON + delay)


def burst(path: Path, count: int, *, when: str, prefix: str = "e", **more: str) -> Path:
    """Write `count` requests for one instant to a file."""
    return lines(
        path, ({"eventId": f"{prefix}{n}", "requestedTime": when} | more for n in range(count))
    )


def lines(path: Path, requests: Iterable[object]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in requests))
    return path


async def slots_of(db: Pool) -> int:
    return await db.fetchval("SELECT count(*) FROM penstock.slot")


# --------------------------------------------------------------------------------------- assign


@pytest.mark.covers("D3", "D33")
def test_a_repeated_assign_prints_the_same_slot(cli: Cli) -> None:
    """For any instant: who asks again computes it from another now."""
    first = answer(cli("slots", "assign", "a", "--at", at(), "--json"))
    again = cli("slots", "assign", "a", "--at", at(), "--json")
    later = cli("slots", "assign", "a", "--at", at(HOUR), "--json")
    second = answer(cli("slots", "assign", "b", "--at", at(), "--json"))

    slot = {"eventId": "a", "scheduledTime": at(), "delayMs": 0}
    assert first == slot | {"outcome": "assigned"}
    assert answer(again) == slot | {
        "outcome": "existing",
        "configName": "default",
        "requestedTime": at(),
    }
    assert later.out == again.out
    assert second == {
        "eventId": "b",
        "scheduledTime": at(timedelta(milliseconds=40)),
        "delayMs": 40,
        "outcome": "assigned",
    }


def test_without_json_a_slot_is_printed_for_people(cli: Cli) -> None:
    printed = record(cli("slots", "assign", "a", "--at", at(timedelta(milliseconds=15))))

    assert printed["event_id"] == "a"
    assert printed["config_name"] == "default"
    assert printed["scheduled_time"] == at(timedelta(milliseconds=40))
    assert printed["delay"] == "25ms"
    assert printed == {"outcome": "assigned"} | record(cli("slots", "show", "a"))
    again = record(cli("slots", "assign", "a", "--at", at(HOUR)))
    assert again == printed | {"outcome": "existing"}


def test_an_instant_may_be_relative_to_now(cli: Cli) -> None:
    slot = answer(cli("slots", "assign", "a", "--at", "+2h", "--json"))

    away = datetime.fromisoformat(slot["scheduledTime"]) - datetime.now(UTC)
    assert HOUR < away < 3 * HOUR


async def test_in_a_strict_pool_another_time_is_a_conflict_that_shows_its_slot(
    cli: Cli, db: Pool
) -> None:
    made = cli("slots", "config", "set", "default", "strict=true")
    cli("slots", "assign", "a", "--at", at())

    message = refused(cli("slots", "assign", "a", "--at", at(SECOND)), 3)

    assert record(made)["strict"] == "yes"
    assert f"existing slot: {at()}, requested for {at()} in pool 'default'" in message
    assert await slots_of(db) == 1


BAD_REQUESTS = {
    "an empty event id": (["", "--at", "+5m"], "EVENT_ID: "),
    "an event id too long": (["x" * 51, "--at", "+5m"], "EVENT_ID: "),
    "an item's event id": (["item:5", "--at", "+5m"], "EVENT_ID: "),
    "an event id that is no text": (["\udcff", "--at", "+5m"], "Invalid value for '[EVENT_ID]'"),
    "no instant": (["a", "--at", "soon"], "--at: "),
    "no time zone": (["a", "--at", "2030-01-01T00:00:00"], "--at: "),
    "beyond the horizon": (["a", "--at", "+400d"], "--at: is beyond the horizon"),
    "a year that cannot be": (["a", "--at", "0001-01-01T00:00:00+14:00"], "--at: "),
    "an unknown pool": (["a", "--at", "+5m", "--config", "nope"], "no slot pool is named 'nope'"),
    "no --at": (["a"], "give either EVENT_ID and --at, or --file"),
    "neither event nor file": ([], "give either EVENT_ID and --at, or --file"),
    "a file that is not there": (["--file", "/nowhere"], "Invalid value for '--file'"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD_REQUESTS.values(), ids=BAD_REQUESTS)
async def test_a_bad_request_names_the_option_and_books_nothing(
    cli: Cli, db: Pool, *, arguments: list[str], message: str
) -> None:
    """The error names the option `--at`, not the field of the REST API."""
    assert refused(cli("slots", "assign", *arguments), 2).startswith(message)
    assert await slots_of(db) == 0


def test_a_slot_refused_by_the_calendar_is_a_conflict(cli: Cli, tmp_path: Path) -> None:
    hours = {"days": [f"{NOON:%a}".lower()], "opens": "12:00", "closes": "12:01"}
    calendar = {"timeZone": "UTC", "hours": [hours], "cutOffPolicy": "reject"}
    file = lines(tmp_path / "calendar.json", [calendar])
    cli(
        "slots",
        "config",
        "set",
        "rare",
        "max_per_window=1",
        "window_size=1m",
        "--calendar",
        str(file),
    )
    cli("slots", "assign", "a", "--at", at(), "--config", "rare")

    assert refused(cli("slots", "assign", "b", "--at", at(), "--config", "rare"), 3)


# ---------------------------------------------------------------------------------------- files


def test_a_file_is_booked_and_summarised(cli: Cli, tmp_path: Path) -> None:
    file = burst(tmp_path / "burst.ndjson", 250, when=at())

    first = cli("slots", "assign", "--file", str(file))
    again = cli("slots", "assign", "--file", str(file))

    assert (first.code, first.out, first.err) == (0, "assigned  250\n", "")
    assert again.out == "existing  250\n"
    last = answer(cli("slots", "show", "e249", "--json"))
    assert last["scheduledTime"] == at(249 * timedelta(milliseconds=40))


def test_with_json_a_file_has_one_result_per_line(cli: Cli, tmp_path: Path) -> None:
    file = burst(tmp_path / "burst.ndjson", 3, when=at())

    printed = answers(cli("slots", "assign", "--file", str(file), "--json"))

    assert [(each["index"], each["outcome"]) for each in printed] == [
        (0, "assigned"),
        (1, "assigned"),
        (2, "assigned"),
    ]
    assert printed[2]["scheduledTime"] == at(timedelta(milliseconds=80))


def test_bad_lines_do_not_stop_the_good_ones(cli: Cli, tmp_path: Path) -> None:
    """One bad line must not fail a million others, but the exit code shows it to scripts."""
    file = tmp_path / "mixed.ndjson"
    good = {"eventId": "a", "requestedTime": at()}
    lines(
        file,
        [
            good,
            good | {"requestedTime": at(SECOND)},
            good | {"eventId": "b", "configName": "nope"},
            good | {"eventId": "x" * 51},
            good | {"eventId": "c", "colour": "red"},
            good | {"eventId": "d"},
        ],
    )
    with file.open("a") as more:
        more.write("\n{\n")

    ended = cli("slots", "assign", "--file", str(file))

    assert ended.code == 1
    assert dict(line.split() for line in ended.out.splitlines()) == {
        "assigned": "2",
        "existing": "1",
        "unknown_config": "1",
        "invalid": "3",
    }
    assert [line.split(":")[0] for line in ended.err.splitlines()] == [
        f"request {n}" for n in (3, 4, 5, 7)
    ]
    assert answer(cli("slots", "show", "d", "--json"))["delayMs"] == 40


def test_only_the_first_few_bad_lines_are_printed(cli: Cli, tmp_path: Path) -> None:
    file = lines(tmp_path / "bad.ndjson", [{}] * 25)

    ended = cli("slots", "assign", "--file", str(file))

    assert ended.code == 1
    assert ended.err.splitlines()[-1] == "and 15 more; --json shows all"


def test_an_empty_file_prints_a_notice(cli: Cli, tmp_path: Path) -> None:
    file = lines(tmp_path / "empty.ndjson", [])

    ended = cli("slots", "assign", "--file", str(file))

    assert (ended.code, ended.out, ended.err) == (0, "", "the input has no lines\n")


def test_a_file_and_an_event_exclude_each_other(cli: Cli, tmp_path: Path) -> None:
    file = burst(tmp_path / "burst.ndjson", 1, when=at())

    assert refused(cli("slots", "assign", "a", "--at", at(), "--file", str(file)), 2)
    assert refused(cli("slots", "assign", "--config", "default", "--file", str(file)), 2)


# ------------------------------------------------------------------------- show, list and cancel


def test_slots_are_listed_page_by_page(cli: Cli, tmp_path: Path) -> None:
    cli("slots", "assign", "--file", str(burst(tmp_path / "burst.ndjson", 5, when=at())))

    table = cli("slots", "list", "--limit", "2").out.splitlines()
    rest = answers(cli("slots", "list", "--after", "e1", "--limit", "2", "--json"))
    until = answers(cli("slots", "list", "--until", at(timedelta(milliseconds=40)), "--json"))
    later = answers(cli("slots", "list", "--from", at(timedelta(milliseconds=160)), "--json"))

    assert [line.split()[0] for line in table[1:]] == ["e0", "e1"]
    assert table[0].startswith("event id  requested time")
    assert [each["eventId"] for each in rest] == ["e2", "e3"]
    assert [each["eventId"] for each in until] == ["e0"]
    assert [each["eventId"] for each in later] == ["e4"]


def test_an_empty_list_prints_a_notice_and_an_unknown_pool_is_bad_input(cli: Cli) -> None:
    ended = cli("slots", "list")

    assert (ended.code, ended.out, ended.err) == (0, "", "pool default has no such slots\n")
    assert refused(cli("slots", "list", "--config", "nope"), 2).startswith("no slot pool")
    assert refused(cli("slots", "list", "--from", "soon"), 2).startswith("--from: ")
    far = "9999-12-31T23:59:59-14:00"
    assert refused(cli("slots", "list", "--until", far), 2).startswith("--until: must be")
    assert refused(cli("slots", "list", "--after", "a"), 2) == "event 'a' has no slot"


def test_a_cancelled_slot_goes_to_the_next_request(cli: Cli) -> None:
    cli("slots", "assign", "a", "--at", at())
    cli("slots", "assign", "b", "--at", at())

    gone = cli("slots", "cancel", "a")
    again = cli("slots", "cancel", "a", "--json")
    third = answer(cli("slots", "assign", "c", "--at", at(), "--json"))

    assert gone.out == "the slot of event a is free again\n"
    assert answer(again) == {"eventId": "a", "cancelled": True}
    assert third["delayMs"] == 0
    assert refused(cli("slots", "show", "a"), 2) == "event 'a' has no slot"


def test_an_event_without_a_slot_cannot_be_cancelled(cli: Cli) -> None:
    assert refused(cli("slots", "cancel", "nobody"), 2) == "event 'nobody' has no slot"
    assert refused(cli("slots", "cancel", "item:5"), 2).startswith("EVENT_ID: belongs to an item")
    assert refused(cli("slots", "show", "nobody"), 2) == "event 'nobody' has no slot"


# ------------------------------------------------------------------------------------- forecast


def test_the_last_of_a_million_at_100_in_4_seconds_is_at_23_06_39_96(cli: Cli) -> None:
    """The reference value: REST and SQL must give the same."""
    ended = cli("slots", "forecast", "--count", "1000000", "--from", at(), "--json")

    assert answer(ended) == {
        "configName": "default",
        "count": 1_000_000,
        "first": f"{NOON:%Y-%m-%d}T12:00:00Z",
        "last": f"{NOON:%Y-%m-%d}T23:06:39.960Z",
        "windowsUsed": 10_000,
    }


async def test_a_forecast_is_printed_for_people_and_books_nothing(cli: Cli, db: Pool) -> None:
    ended = cli("slots", "forecast", "--count", "1000000", "--from", at())

    printed = record(ended)
    assert printed["pool"] == "default, 100 per 4s"
    assert printed["count"] == "1,000,000"
    assert printed["last"] == f"{NOON:%Y-%m-%d}T23:06:39.960Z"
    assert printed["duration"] == "11h 6m 39.96s"
    assert printed["windows"] == "10,000"
    assert "wait" not in printed
    assert await slots_of(db) == 0


def test_the_chart_shows_booked_forecast_and_free_slots(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A booked quarter of an hour in the middle of the forecast, drawn in 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    file = burst(tmp_path / "burst.ndjson", 22_500, when=at(30 * MINUTE))
    assert cli("slots", "assign", "--file", str(file)).out == "assigned  22,500\n"

    ended = cli("slots", "forecast", "--count", "90000", "--from", at())

    assert record(ended)["duration"] == "1h 14m 59.96s"
    rows = [line for line in ended.out.splitlines() if "│" in line or "┤" in line]
    # A column is two minutes: 15 of the forecast, 7 and a half that are booked, the rest of it.
    assert rows[0] == " 100% ┤" + 15 * "▒" + 7 * "█" + 15 * "▒" + 5 * "·"
    assert rows[-1] == "      │" + 15 * "▒" + 8 * "█" + 15 * "▒" + 4 * "·"
    assert "12:00" in ended.out.splitlines()[-3]
    assert "a column is 2m" in ended.out
    assert max(map(len, ended.out.splitlines())) <= 80


def test_a_forecast_after_booked_slots_prints_the_wait_for_the_first(
    cli: Cli, tmp_path: Path
) -> None:
    cli("slots", "assign", "--file", str(burst(tmp_path / "burst.ndjson", 1000, when=at())))

    ended = cli("slots", "forecast", "--count", "100", "--from", at())

    assert record(ended)["wait"] == "40s until the first"
    assert record(ended)["first"] == at(40 * SECOND)


def test_a_forecast_without_a_start_begins_now(cli: Cli) -> None:
    ended = cli("slots", "forecast", "--count", "1", "--json")

    assert datetime.now(UTC) - datetime.fromisoformat(answer(ended)["first"]) < MINUTE
    for when in ("2020-01-01T00:00:00Z", "2199-12-31T23:59:59Z"):
        assert cli("slots", "forecast", "--count", "1", "--from", when).code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--count", "0"], "--count: must be from 1 to 1,000,000,000"),
        (["--count", "many"], "Invalid value for '--count'"),
        (["--count", "1", "--from", "soon"], "--from: "),
        (["--count", "1", "--from", "9999-01-01T00:00:00Z"], "--from: must be"),
        (["--count", "1", "--config", "nope"], "no slot pool is named 'nope'"),
        ([], "Missing option '--count'"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_a_bad_forecast_is_refused(cli: Cli, arguments: list[str], message: str) -> None:
    assert refused(cli("slots", "forecast", *arguments), 2).startswith(message)


def test_a_forecast_beyond_the_year_2200_is_unavailable(cli: Cli) -> None:
    cli("slots", "config", "set", "slow", "max_per_window=1", "window_size=1d")

    message = refused(cli("slots", "forecast", "--count", "100000", "--config", "slow"), 4)

    assert message == "pool 'slow' has no free slot before the year 2200"


# ---------------------------------------------------------------------------------------- chart


def test_few_windows_have_one_column_each() -> None:
    span = span_of(NOON + SECOND, NOON + 9 * SECOND, window=4 * SECOND, width=80)

    assert span == Span(starts_at=NOON, column=4 * SECOND, columns=4)


def test_many_windows_share_a_column_of_a_round_duration() -> None:
    span = span_of(NOON, NOON + 24 * HOUR, window=4 * SECOND, width=80)

    assert span.column == 30 * MINUTE
    assert span.ends_at > NOON + 24 * HOUR


def test_windows_that_divide_no_round_duration_share_a_column_by_number() -> None:
    span = span_of(NOON, NOON + 8 * HOUR, window=7 * SECOND, width=80)

    assert span.column % (7 * SECOND) == timedelta(0)
    assert span.columns <= 73


def test_a_forecast_fills_free_slots_in_order_and_skips_past_ones() -> None:
    buckets = [
        Bucket(starts_at=NOON + n * SECOND, capacity=10, booked=booked)
        for n, booked in enumerate((2, 10, 4, 0))
    ]

    assert columns_of(buckets, passed=3, count=12) == [
        Column(booked=2, forecast=5, free=0),
        Column(booked=10, forecast=0, free=0),
        Column(booked=4, forecast=6, free=0),
        Column(booked=0, forecast=1, free=9),
    ]


def test_every_non_zero_part_is_visible_and_closed_time_is_blank() -> None:
    columns = [
        Column(booked=1, forecast=1, free=998),
        Column(booked=0, forecast=0, free=0),
        Column(booked=998, forecast=1, free=1),
    ]

    drawn = draw(columns, Span(starts_at=NOON, column=SECOND, columns=3), width=10).plain

    rows = [line[7:] for line in drawn.splitlines()[:8]]
    assert rows == ["· ·", "· ▒", *4 * ["· █"], "▒ █", "█ █"]
    assert "blank: closed" in drawn


@pytest.mark.parametrize(
    ("length", "printed"),
    [
        (timedelta(0), "0s"),
        (timedelta(milliseconds=40), "40ms"),
        (timedelta(microseconds=1500), "1.5ms"),
        (4 * SECOND, "4s"),
        (timedelta(seconds=39, milliseconds=960), "39.96s"),
        (2 * HOUR, "2h"),
        (timedelta(days=1, seconds=61), "1d 1m 1s"),
        (-90 * SECOND, "-1m 30s"),
    ],
)
def test_a_duration_is_printed_in_all_its_units(length: timedelta, printed: str) -> None:
    assert lasting(length) == printed


# --------------------------------------------------------------------------------------- config


@pytest.mark.covers("D10", "D22", "D23")
def test_migrations_create_a_default_pool(cli: Cli) -> None:
    printed = record(cli("slots", "config", "show"))
    found = answer(cli("slots", "config", "show", "default", "--json"))

    assert (printed["max_per_window"], printed["window_size"], printed["spacing"]) == (
        "100",
        "4s",
        "even",
    )
    assert (found["maxPerWindow"], found["windowSize"]) == (100, "PT4S")


@pytest.mark.covers("D13")
def test_a_change_is_a_new_version_and_keeps_omitted_fields(cli: Cli) -> None:
    words = ("max_per_window=10", "window_size=2s", "spacing=random", "horizon=30d")
    made = record(cli("slots", "config", "set", "mails", *words))

    changed = answer(cli("slots", "config", "set", "mails", "max_per_window=20", "--json"))

    assert (made["version"], made["created_by"].split(":")[0]) == ("1", "cli")
    assert (changed["version"], changed["maxPerWindow"]) == (2, 20)
    assert changed["windowSize"] == "PT2S"
    assert changed["spacing"] == "random"
    assert changed["horizon"] == "P30D"
    kept = answers(cli("slots", "config", "versions", "mails", "--json"))
    assert [(each["version"], each["active"]) for each in kept] == [(2, True), (1, False)]


def test_pools_are_listed_with_their_active_version(cli: Cli) -> None:
    cli("slots", "config", "set", "mails", "max_per_window=10", "window_size=2s")
    cli("slots", "config", "set", "mails", "max_per_window=20")

    head, *rows = cli("slots", "config", "list").out.splitlines()
    versions = cli("slots", "config", "versions", "mails").out.splitlines()

    assert head.startswith("config name  version")
    assert [row.split()[:2] for row in rows] == [["default", "1"], ["mails", "2"]]
    assert len(versions) == 3
    names = [each["configName"] for each in answers(cli("slots", "config", "list", "--json"))]
    assert names == ["default", "mails"]


def test_a_calendar_is_read_from_a_file_and_removed_with_none(cli: Cli, tmp_path: Path) -> None:
    calendar = {"timeZone": "Europe/Berlin", "holidays": ["TARGET2"], "cutOff": "16:30"}
    file = lines(tmp_path / "calendar.json", [calendar])
    words = ("max_per_window=10", "window_size=1s", "--calendar", str(file))

    made = answer(cli("slots", "config", "set", "bank", *words, "--json"))
    listed = cli("slots", "config", "list").out
    kept = answer(cli("slots", "config", "set", "bank", "max_per_window=5", "--json"))
    gone = answer(cli("slots", "config", "set", "bank", "--calendar", "none", "--json"))

    assert made["calendar"]["cutOff"] == "16:30"
    assert "Europe/Berlin" in listed
    assert kept["calendar"] == made["calendar"]
    assert (gone["calendar"], gone["maxPerWindow"]) == (None, 5)


BAD_CONFIGS = {
    "nothing": ([], "changes: "),
    "no size for a new pool": (["max_per_window=5"], "window_size: is required"),
    "no capacity for a new pool": (["window_size=4s"], "max_per_window: is required"),
    "no capacity": (["max_per_window=0", "window_size=4s"], "max_per_window: must be"),
    "less than none": (["max_per_window=-1", "window_size=4s"], "max_per_window: must be"),
    "half a slot": (["max_per_window=1.5", "window_size=4s"], "max_per_window: '1.5' is not"),
    "too many": ([f"max_per_window={10**30}", "window_size=4s"], "max_per_window: must be"),
    "more than microseconds": (["max_per_window=1001", "window_size=1ms"], "max_per_window: must"),
    "no window": (["max_per_window=5", "window_size=0"], "window_size: must be"),
    "a window too long": (["max_per_window=5", "window_size=25h"], "window_size: must be"),
    "no duration": (["max_per_window=5", "window_size=long"], "window_size: 'long' is not"),
    "no horizon": (["max_per_window=5", "window_size=1s", "horizon=0"], "horizon: must be"),
    "an odd spacing": (["spacing=odd"], "spacing: 'odd' is neither"),
    "an odd truth": (["strict=maybe"], "strict: 'maybe' is neither"),
    "a stranger": (["colour=red"], "colour: is not part"),
    "no value": (["spacing"], "spacing: must look like"),
    "twice": (["max_per_window=1", "max_per_window=2"], "max_per_window: is given twice"),
    "no file": (["--calendar", "/nowhere"], "--calendar: '/nowhere' cannot be read"),
    "a folder": (["--calendar", "/"], "--calendar: '/' cannot be read"),
}


@pytest.mark.parametrize(("words", "message"), BAD_CONFIGS.values(), ids=BAD_CONFIGS)
def test_a_bad_rule_is_refused_with_the_key_of_set(
    cli: Cli, words: list[str], message: str
) -> None:
    assert refused(cli("slots", "config", "set", "new", *words), 2).startswith(message)
    assert refused(cli("slots", "config", "show", "new"), 2) == "no slot pool is named 'new'"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "--calendar: "),
        ("[]", "--calendar: Expected `object`"),
        ("{}", "--calendar: Object missing required field `timeZone`"),
        ('{"timeZone": "Mars/Base"}', "--calendar.timeZone: 'Mars/Base' is not an IANA"),
        ('{"timeZone": "UTC", "hours": [{"days": "mon"}]}', "--calendar.hours[0].days: Expected"),
        ('{"timeZone": "UTC", "cutOff": "25:00"}', "--calendar.cutOff: "),
        ("\xff", "--calendar: "),
    ],
)
def test_a_bad_calendar_is_refused_with_its_field(
    cli: Cli, tmp_path: Path, *, text: str, message: str
) -> None:
    file = tmp_path / "calendar.json"
    file.write_bytes(text.encode("latin-1"))
    words = ("max_per_window=10", "window_size=1s", "--calendar", str(file))

    assert refused(cli("slots", "config", "set", "bank", *words), 2).startswith(message)


def test_a_pool_needs_a_name(cli: Cli) -> None:
    words = ("max_per_window=5", "window_size=1s")

    assert refused(cli("slots", "config", "set", "", *words), 2).startswith("NAME: ")
    assert refused(cli("slots", "config", "set", "x" * 129, *words), 2).startswith("NAME: ")
    assert refused(cli("slots", "config", "show", "\udcff"), 2).startswith("Invalid value")


# --------------------------------------------------------------------------------------- reflow


@pytest.fixture
def halved(cli: Cli, tmp_path: Path) -> Cli:
    """A pool whose capacity was halved after 200 slots, two full windows, were booked."""
    cli("slots", "assign", "--file", str(burst(tmp_path / "burst.ndjson", 200, when=at())))
    assert cli("slots", "config", "set", "default", "max_per_window=50").code == 0
    return cli


def test_a_reflow_with_yes_prints_what_it_did_and_no_dry_run(halved: Cli) -> None:
    """Whoever reads `dry_run yes` after --yes believes that nothing has moved."""
    ended = halved("slots", "reflow", "--yes")

    *_, message = ended.out.splitlines()
    printed = record(ended)
    assert (printed["dry_run"], printed["considered"], printed["moved"]) == ("no", "200", "199")
    assert ended.out.count("dry_run") == 1
    assert printed["last_after"] == at(16 * SECOND - timedelta(milliseconds=80))
    assert message == "list the moves: penstock slots moves --reflow 1"
    last = answer(halved("slots", "show", "e199", "--json"))
    assert last["scheduledTime"] == printed["last_after"]


def test_with_json_a_reflow_with_yes_is_one_result(halved: Cli) -> None:
    has = answer(halved("slots", "reflow", "--yes", "--json"))

    assert (has["dryRun"], has["reflowId"], has["moved"]) == (False, 1, 199)


def test_a_reflow_with_yes_and_nothing_to_move_says_so(cli: Cli) -> None:
    cli("slots", "assign", "a", "--at", at())

    ended = cli("slots", "reflow", "--yes")

    assert (ended.code, ended.err) == (0, "no slots to move\n")
    assert record(ended)["moved"] == "0"


def test_a_reflow_without_a_terminal_needs_yes(halved: Cli) -> None:
    """A script must give --yes; the dry run is printed all the same."""
    before = halved("slots", "show", "e199").out

    ended = halved("slots", "reflow")

    assert refused(ended, 2).endswith("Move 199 slots of pool default?")
    assert "moved          199" in ended.out.splitlines()
    assert halved("slots", "show", "e199").out == before


def test_a_dry_run_exits_with_0_and_moves_nothing(halved: Cli) -> None:
    before = halved("slots", "show", "e199").out

    printed = record(halved("slots", "reflow", "--dry-run"))

    assert printed["moved"] == "199"
    assert halved("slots", "show", "e199").out == before


def test_slots_before_the_freeze_stay_and_moves_are_listed(halved: Cli) -> None:
    halved("slots", "reflow", "--yes", "--freeze-until", at(4 * SECOND))

    table = halved("slots", "moves", "--limit", "2").out.splitlines()
    listed = answers(halved("slots", "moves", "--reflow", "1", "--limit", "1000", "--json"))
    rest = answers(halved("slots", "moves", "--after", str(listed[-2]["moveId"]), "--json"))

    assert [line.split()[2] for line in table[1:]] == ["e101", "e102"]
    assert len(listed) == 99
    assert listed[0] | {"movedAt": None} == {
        "moveId": 1,
        "reflowId": 1,
        "eventId": "e101",
        "configName": "default",
        "movedFrom": at(timedelta(seconds=4, milliseconds=40)),
        "movedTo": at(timedelta(seconds=4, milliseconds=80)),
        "movedAt": None,
    }
    assert rest == listed[-1:]


def test_without_moves_there_is_no_confirmation(cli: Cli) -> None:
    cli("slots", "assign", "a", "--at", at())

    ended = cli("slots", "reflow")

    assert (ended.code, ended.err) == (0, "no slots to move\n")
    assert cli("slots", "moves").err == "there are no such moves\n"


def test_a_bad_reflow_is_refused(cli: Cli) -> None:
    assert refused(cli("slots", "reflow", "--config", "nope"), 2).startswith("no slot pool")
    for when in ("x", "9999-01-01T00:00:00Z"):
        ended = cli("slots", "reflow", "--freeze-until", when)
        assert refused(ended, 2).startswith("--freeze-until: ")


# ------------------------------------------------------------------------------------------ all


def test_without_a_schema_the_error_names_migrate(
    cli: Cli, empty_dsn: str, monkeypatch: pytest.MonkeyPatch, *, tmp_path: Path
) -> None:
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", empty_dsn)
    file = burst(tmp_path / "burst.ndjson", 1, when=at())

    for arguments in (["list"], ["forecast", "--count", "1"], ["assign", "--file", str(file)]):
        assert "penstock migrate" in refused(cli("slots", *arguments), 1)


def test_every_verb_has_help(bare_cli: Cli) -> None:
    for verb in ("assign", "show", "list", "cancel", "forecast", "reflow", "moves", "config"):
        assert bare_cli("slots", verb, "--help").code == 0
