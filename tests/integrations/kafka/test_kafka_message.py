"""An event as a message: what is written is read; what is no event is refused with a reason."""

import re
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import InvalidInput
from penstock.domains.webhooks.event import NewEvent
from penstock.domains.webhooks.kafka_message import decode, encode, key_of, with_id

PLACE = "kafka-1a2b3c4d-0-17-1700000000000"
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
IDS = st.from_regex(r"[A-Za-z0-9_-]{1,128}", fullmatch=True)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
)
EVENTS = st.builds(
    NewEvent,
    type=st.from_regex(r"[a-z]{1,8}(\.[a-z]{1,8}){0,3}", fullmatch=True),
    data=DATA.map(lambda value: msgspec.json.encode(value).decode()),
    id=IDS,
    source=st.none() | TEXTS.map(lambda text: text[:255]),
    tenant=TEXTS.map(lambda text: text[:128]),
    idempotency_key=st.none() | TEXTS.map(lambda text: text[:255]),
)


def read(value: bytes | None, *, data_bytes_max: int = 1_000) -> NewEvent:
    return decode(value, place=PLACE, data_bytes_max=data_bytes_max)


@given(EVENTS)
def test_what_is_written_is_read(event: NewEvent) -> None:
    assert read(encode(event), data_bytes_max=1_000_000) == event


def test_a_message_is_plain_json_with_the_data_as_it_came() -> None:
    """Numbers must keep their digits: they may be amounts of money."""
    event = NewEvent(id="e1", type="order.paid", data='{"amount": 12.00}', tenant="acme")

    written = encode(event)

    assert written == (b'{"id":"e1","type":"order.paid","tenant":"acme","data":{"amount": 12.00}}')
    assert read(written) == event


def test_a_type_and_data_are_enough() -> None:
    event = read(b'{"type": "order.paid", "data": 1}')

    assert event == NewEvent(type="order.paid", data="1", id=PLACE, tenant="default")


def test_null_is_the_same_as_nothing() -> None:
    value = b'{"type":"t","data":null,"id":null,"source":null,"idempotency_key":null}'

    assert read(value) == NewEvent(type="t", data="null", id=PLACE)


def test_an_event_with_an_idempotency_key_is_not_named_after_its_place() -> None:
    """The key alone says whether it is known; a second name would contradict the first."""
    event = read(b'{"type": "t", "data": 1, "idempotency_key": "k"}')

    assert event.id is None
    assert event.idempotency_key == "k"


def test_fields_of_a_later_release_are_ignored() -> None:
    assert read(b'{"type": "t", "data": 1, "priority": 7}').type == "t"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "message: is empty"),
        (b"", "message: Input data was truncated"),
        (b"{", "message: Input data was truncated"),
        (b"\x00\x00\x00\x00\x01avro", "message: JSON is malformed"),
        (b"[]", "message: Expected `object`, got `array`"),
        (b"{}", "message: Object missing required field `type`"),
        (b'{"type": "t"}', "message: Object missing required field `data`"),
        (b'{"type": 1, "data": 1}', r"message: Expected `str`, got `int` - at `\$.type`"),
        (b'{"type": "t", "data": 1, "tenant": null}', "message: Expected `str`, got `null`"),
        (b'{"type": "\xff", "data": 1}', "message: is not UTF-8"),
        (b'{"type": "t..x", "data": 1}', "type: "),
        (b'{"type": "t", "data": "\xff"}', "data: is not JSON"),
        (b'{"type": "t", "data": "\\ud800"}', "(message|data): "),
        (b'{"type": "t", "data": "\\u0000"}', "data: "),
        (b'{"type": "t", "data": "' + 1_000 * b"x" + b'"}', "data: is over 1000 bytes"),
        (b'{"type": "t", "data": 1, "id": ""}', "id: "),
        (b'{"type": "t", "data": 1, "id": "a b"}', "id: "),
        (b'{"type": "t", "data": 1, "source": "\\u0000"}', "source: "),
        (b'{"type": "t", "data": 1, "tenant": ""}', "tenant: "),
        (b'{"type": "t", "data": ' + 100_000 * b"[" + 100_000 * b"]" + b"}", ""),
    ],
)
def test_a_bad_message_is_refused_with_a_reason(value: bytes | None, reason: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read(value)

    assert re.match(reason, str(refused.value)), str(refused.value)


@given(st.binary(max_size=200))
def test_no_bytes_do_any_other_harm(value: bytes) -> None:
    """A reader that fails on a message in any other way would fail on it for ever."""
    with suppress(InvalidInput):
        assert read(value).type


def test_a_missing_id_is_generated() -> None:
    event = NewEvent(type="t", data="1")

    one, two = with_id(event), with_id(event)

    assert one.id is not None
    assert one.id.startswith("evt_")
    assert one.id != two.id


def test_an_event_with_an_id_keeps_it() -> None:
    event = NewEvent(type="t", data="1", id="e1", idempotency_key="k")

    assert with_id(event) == event


def test_an_idempotency_key_makes_the_same_id_again_for_its_tenant() -> None:
    """Who repeats a call must get the same answer, though nothing was looked up."""
    event = NewEvent(type="t", data="1", idempotency_key="k")

    again = with_id(NewEvent(type="t", data="2", idempotency_key="k"))
    elsewhere = with_id(NewEvent(type="t", data="1", idempotency_key="k", tenant="acme"))

    assert with_id(event).id == again.id
    assert with_id(event).id != elsewhere.id


def test_repeats_of_an_event_go_to_one_partition() -> None:
    event = NewEvent(type="t", data="1", id="e1", tenant="acme")

    assert key_of(event) == b"acme/e1"
