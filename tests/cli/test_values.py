"""Values of the command line are parsed exactly, or refused with the name of their field."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as some

from penstock.base.errors import InvalidInput
from penstock.console.output import duration
from penstock.console.values import parse_duration, parse_instant, parse_policy


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", timedelta(0)),
        ("500ms", timedelta(milliseconds=500)),
        ("30s", timedelta(seconds=30)),
        ("1.5m", timedelta(seconds=90)),
        ("1h", timedelta(hours=1)),
        ("2D", timedelta(days=2)),
        ("PT30S", timedelta(seconds=30)),
        ("pt1h", timedelta(hours=1)),
    ],
)
def test_a_duration_is_read_in_short_and_in_iso_form(text: str, expected: timedelta) -> None:
    assert parse_duration(text, field="lease") == expected


@pytest.mark.parametrize("text", ["", "30", "-5s", "5 s", "s", "1w", "99999999999999d", "1e3s"])
def test_a_bad_duration_is_refused_with_the_field(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_duration(text, field="lease")

    assert refused.value.field == "lease"


@given(some.integers(0, 10**9))
def test_a_printed_duration_can_be_typed_again(milliseconds: int) -> None:
    """What `lane show` prints is what `lane set` takes."""
    value = timedelta(milliseconds=milliseconds)

    assert parse_duration(duration(value), field="lease") == value


def test_an_instant_needs_a_time_zone() -> None:
    """A naive instant means something else on every machine."""
    assert parse_instant("2030-01-31T16:00:00Z", field="due_at") == datetime(
        2030, 1, 31, 16, tzinfo=UTC
    )
    with pytest.raises(InvalidInput, match="time zone"):
        parse_instant("2030-01-31T16:00:00", field="due_at")


@pytest.mark.parametrize("text", ["", "soon", "+", "+9999999d", "2030-13-01T00:00:00Z"])
def test_a_bad_instant_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_instant(text, field="due_at")


def test_policy_values_get_the_type_of_their_field() -> None:
    words = ["rate=none", "burst=5", "lease=1m", "enabled=off", "backoff_jitter=0.5"]

    limits = 'key_limits={"tenant": {"rate": 20}}'

    assert parse_policy([*words, "ordering=per_key", limits]) == {
        "rate": None,
        "burst": 5,
        "lease": timedelta(minutes=1),
        "enabled": False,
        "backoff_jitter": 0.5,
        "ordering": "per_key",
        "key_limits": {"tenant": {"rate": 20}},
    }


@pytest.mark.parametrize(
    "word",
    [
        "rate",
        "rate=",
        "rate=nan",
        "rate=inf",
        "rate=fast",
        "burst=1.5",
        "burst=999999999999999999999",
        "enabled=perhaps",
        "lease=30",
        "key_limits={tenant: 20}",
        "colour=red",
    ],
)
def test_a_bad_policy_value_is_refused_with_its_field(word: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_policy([word])

    assert refused.value.field == word.partition("=")[0]


def test_a_policy_field_given_twice_is_refused() -> None:
    """It is not clear which of the two is meant."""
    with pytest.raises(InvalidInput, match="twice"):
        parse_policy(["rate=1", "rate=2"])
