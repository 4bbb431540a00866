"""Reading responses from bytes, however they are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.integrations.http_client import Limits, Response
from penstock.integrations.http_client.reader import Malformed, Reader

SMALL = Limits(head_bytes_max=1_000, body_bytes_max=100)
BODY = b'{"ok":true}'
SOUND = {
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\nRetry-After: 7\r\n\r\n" + BODY,
    "chunked": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nRetry-After: 7\r\n\r\n"
        b'5;x=y\r\n{"ok"\r\n6\r\n:true}\r\n0\r\nRetry-After: 8\r\nX: trailer\r\n\r\n'
    ),
    "informational": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nRetry-After: 9\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nRETRY-AFTER: 7\r\nContent-Length: 11\r\n\r\n" + BODY
    ),
    "closing": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n"
        b"Connection: close\r\nretry-after: 7\r\n\r\n" + BODY
    ),
    "old": b"HTTP/1.0 200 OK\r\nContent-Length: 11\r\nRetry-After: 7\r\n\r\n" + BODY,
}  # fmt: skip
REUSABLE = {"length", "chunked", "informational"}

each_sound = pytest.mark.parametrize("name", SOUND)


def read(*pieces: bytes, limits: Limits = SMALL) -> tuple[Reader, bool]:
    reader = Reader(limits)
    is_complete = [reader.feed(piece) for piece in pieces][-1]
    return reader, is_complete


def response_of(*pieces: bytes, limits: Limits = SMALL) -> Response:
    reader, is_complete = read(*pieces, limits=limits)
    assert is_complete
    return reader.response(0.0)


@each_sound
def test_a_response_is_the_same_however_it_is_cut(name: str) -> None:
    """The network cuts where it likes."""
    data = SOUND[name]
    for cut in range(1, len(data)):
        reader, is_complete = read(data[:cut], data[cut:])

        assert is_complete
        response = reader.response(1.5)
        assert (response.status, response.body) == (200, BODY)
        assert response.header("Retry-After") == "7"
        assert response.header("x") is None
        assert not response.is_truncated
        assert response.duration_seconds == 1.5
        assert reader.is_reusable == (name in REUSABLE)


@each_sound
def test_a_response_is_complete_with_its_last_byte_and_not_before(name: str) -> None:
    data = SOUND[name]
    reader = Reader(SMALL)

    assert not any(reader.feed(data[index : index + 1]) for index in range(len(data) - 1))
    assert reader.feed(data[-1:])


def test_one_response_follows_another() -> None:
    reader = Reader(SMALL)
    for _ in range(3):
        for name in sorted(REUSABLE):
            reader.begin()

            assert reader.feed(SOUND[name])
            assert reader.response(0.0).body == BODY
            assert reader.is_reusable


@pytest.mark.parametrize("status", [204, 304])
def test_some_statuses_have_no_body(status: int) -> None:
    """A length there is about something else, and nothing follows."""
    reader, is_complete = read(b"HTTP/1.1 %d X\r\nContent-Length: 5\r\n\r\n" % status)

    assert is_complete
    assert reader.response(0.0).body == b""
    assert reader.is_reusable


@pytest.mark.parametrize(
    "behind",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"H",
        b"garbage",
        b"\x00",
        b"\r\n\r\nHTTP/1.1 500 X\r\n",
    ],
)
def test_what_follows_a_response_spoils_the_connection_and_not_the_response(behind: bytes) -> None:
    """A second answer that nobody asked for would be taken for that to the next request."""
    for data in SOUND.values():
        reader, is_complete = read(data + behind)

        assert is_complete
        assert (reader.response(0.0).status, reader.response(0.0).body) == (200, BODY)
        assert not reader.is_reusable


@pytest.mark.parametrize(
    "head",
    [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n",
     b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n"],
)  # fmt: skip
def test_without_a_length_the_end_of_the_connection_ends_the_body(head: bytes) -> None:
    reader, is_complete = read(head, b"abc", b"def")

    assert not is_complete
    assert reader.end()
    assert reader.response(0.0).body == b"abcdef"
    assert not reader.is_reusable


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTT",
        b"",
    ],
)
def test_an_end_that_comes_too_early_is_noticed(data: bytes) -> None:
    """Half an answer must not count as one: the status may not even be the real one."""
    reader, is_complete = read(data)

    assert not is_complete
    assert not reader.end()


@pytest.mark.parametrize(
    "data",
    [
        b"garbage\r\n\r\n",
        b"220 mail.example ESMTP\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x15\x03\x01\x00\x02\x02\x16",
        b"<html><body>hello</body></html>",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 000 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\r\n folded\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nx",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ],
)
def test_what_is_no_response_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        read(data)


def test_a_body_is_kept_up_to_the_limit() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"

    whole = response_of(head % 100 + b"a" * 100)
    cut = response_of(head % 101 + b"a" * 101)
    endless = response_of(b"HTTP/1.1 200 OK\r\n\r\n", b"a" * 60, b"b" * 60)

    assert (len(whole.body), whole.is_truncated) == (100, False)
    assert (len(cut.body), cut.is_truncated) == (100, True)
    assert (endless.body, endless.is_truncated) == (b"a" * 60 + b"b" * 40, True)
    assert not read(head % 101 + b"a" * 101)[0].is_reusable


@pytest.mark.parametrize("step", [1, 100, 5_000])
def test_a_head_over_the_limit_is_refused_however_it_is_cut(step: int) -> None:
    """Somebody could send headers for ever, and we would keep them all."""
    data = b"HTTP/1.1 200 OK\r\n" + b"X-Fill: abcdefghij\r\n" * 100 + b"Content-Length: 0\r\n\r\n"

    with pytest.raises(Malformed, match="1000 bytes"):
        read(*(data[start : start + step] for start in range(0, len(data), step)))


def test_a_short_head_may_come_together_with_a_long_body() -> None:
    limits = Limits(head_bytes_max=1_000, body_bytes_max=10_000)

    response = response_of(
        b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"a" * 5_000, limits=limits
    )

    assert len(response.body) == 5_000


def test_informational_responses_cannot_go_on_for_ever() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"

    with pytest.raises(Malformed, match="1000 bytes"):
        read(*[hints] * 100)


def test_trailers_and_tiny_chunks_cannot_go_on_for_ever() -> None:
    """They carry no body, so a limit on the body alone would never be reached."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"
    for endless in (b"0\r\n" + b"X: y\r\n" * 500, b"1;" + b"x" * 2_000):
        response = response_of(head, endless)

        assert (response.body, response.is_truncated) == (b"a", True)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_nothing_but_malformed_is_ever_raised(first: bytes, second: bytes) -> None:
    """The bytes are a stranger's."""
    reader = Reader(SMALL)
    try:
        if reader.feed(b"HTTP/1.1 200 OK\r\n" + first) or reader.feed(second):
            reader.response(0.0)
    except Malformed:
        pass
