"""The classification alone: pure, so that every status and every Retry-After can be asked about."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.domains.webhooks.classify import Classification, classify, read_retry_after

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)


@pytest.mark.covers("B24", "B25", "B26", "B42", "B69")
def test_every_status_has_one_meaning() -> None:
    minute = timedelta(minutes=1)
    meanings = {
        **dict.fromkeys(range(100, 500), Classification("dead", "alive")),
        **dict.fromkeys(range(200, 300), Classification("delivered", "alive")),
        **dict.fromkeys((408, 425, 429), Classification("retry", "alive", minute)),
        **dict.fromkeys(range(500, 1_000), Classification("retry", "failing", minute)),
        410: Classification("gone", "alive"),
    }

    assert {status: classify(status, "60", now=NOW) for status in meanings} == meanings


@pytest.mark.parametrize(
    ("value", "cooldown"),
    [
        (None, None),
        ("0", timedelta(0)),
        (" 7 ", timedelta(seconds=7)),
        ("86400", DAY),
        ("86401", DAY),
        ("9" * 400, DAY),
        ("Tue, 01 Jan 2030 13:00:00 GMT", HOUR),
        ("Tuesday, 01-Jan-30 13:00:00 GMT", HOUR),
        ("Tue Jan  1 13:00:00 2030", HOUR),
        ("Tue, 01 Jan 2030 13:00:00 -0000", HOUR),
        ("Tue, 01 Jan 2030 14:00:00 +0100", HOUR),
        ("Tue, 01 Jan 2030 11:00:00 GMT", timedelta(0)),
        ("Thu, 01 Jan 1970 00:00:00 GMT", timedelta(0)),
        ("Fri, 31 Dec 9999 23:59:59 GMT", DAY),
        ("Fri, 31 Dec 9999 23:59:59 -2359", DAY),
        ("Mon, 01 Jan 0001 00:00:00 +2359", timedelta(0)),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("٣", None),
        ("²", None),
        ("Tue, 32 Jan 2030 13:00:00 GMT", None),
        ("Tue, 01 Jan 99999999999999999999 13:00:00 GMT", None),
        ("Tue, 01 Jan 2030 99999999999999999999:00:00 GMT", None),
        ("Tue, 01 Jan 2030 13:00:00 +99999999999999999999", None),
    ],
)
def test_a_cooldown_is_seconds_or_a_date(value: str | None, cooldown: timedelta | None) -> None:
    assert read_retry_after(value, now=NOW) == cooldown


@given(value=st.text() | st.text(alphabet="0123456789 :,+-JanTueGMT"))
@settings(max_examples=300, derandomize=True, database=None, deadline=None)
def test_whatever_an_endpoint_says_a_cooldown_is_within_a_day(value: str) -> None:
    """The endpoint is a stranger: its header must neither raise nor stop the subscription."""
    cooldown = read_retry_after(value, now=NOW)

    assert cooldown is None or timedelta(0) <= cooldown <= DAY
