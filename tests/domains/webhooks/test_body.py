"""The bytes that are sent."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domains.webhooks.body import compose, timestamp

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
a_text = st.text(st.characters(exclude_categories=["Cs"]))


def compose_with(data: str | bytes, *, source: str | None = None) -> bytes:
    return compose(
        event_id="evt_1", event_type="order.paid", source=source, occurred_at=NOON, data=data
    )


def test_the_body_is_known_to_the_byte() -> None:
    """Receivers may compare or store bodies; a change of form is a change for all of them."""
    assert compose_with('{"a": 1}', source="shop") == (
        b'{"id":"evt_1","type":"order.paid","source":"shop",'
        b'"timestamp":"2030-01-01T12:00:00.000000Z","data":{"a": 1}}'
    )


def test_a_source_that_is_not_known_is_left_out() -> None:
    assert compose_with("null") == (
        b'{"id":"evt_1","type":"order.paid","timestamp":"2030-01-01T12:00:00.000000Z","data":null}'
    )


@pytest.mark.parametrize(
    "data",
    [
        '{"amount":1.0}',
        "[12345678901234567890123, 0.10, 1E5, -0]",
        '{"b":1,"a":2,"b":3}',
        '{ "spaced" : "\\u00e9\\/" }',
        '"ünï😀"',
    ],
)
def test_the_producers_text_is_sent_as_it_came(data: str) -> None:
    """Decoding and encoding would round numbers, drop repeated keys and change escapes."""
    body = compose_with(data)

    assert body.endswith(b'"data":' + data.encode() + b"}")
    assert compose_with(data.encode()) == body


@given(
    event_id=a_text,
    source=st.none() | a_text,
    data=st.recursive(
        st.none() | st.booleans() | st.integers() | a_text,
        lambda inner: st.lists(inner) | st.dictionaries(a_text, inner),
    ),
)
def test_whatever_the_parts_hold_it_is_one_json_object(
    event_id: str, source: str | None, data: object
) -> None:
    """A quote in a source must not end the text in which it stands."""
    body = compose(
        event_id=event_id,
        event_type="order.paid",
        source=source,
        occurred_at=NOON,
        data=json.dumps(data, ensure_ascii=False),
    )

    expected: dict[str, object] = {"id": event_id, "type": "order.paid"}
    if source is not None:
        expected["source"] = source
    expected |= {"timestamp": "2030-01-01T12:00:00.000000Z", "data": data}
    assert json.loads(body) == expected
    assert list(json.loads(body)) == list(expected)


@given(st.datetimes(min_value=datetime(1970, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_a_timestamp_loses_nothing(at: datetime) -> None:
    text = json.loads(timestamp(at))

    assert datetime.fromisoformat(text) == at
    assert len(text) == len("2030-01-01T12:00:00.000000Z")


def test_a_timestamp_is_in_utc_wherever_the_instant_was_taken() -> None:
    """The same event has the same bytes, whatever zone the connection is set to."""
    in_india = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))

    assert timestamp(in_india) == timestamp(NOON) == b'"2030-01-01T12:00:00.000000Z"'
