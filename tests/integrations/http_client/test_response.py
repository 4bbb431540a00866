"""Parsing responses from bytes, however they are split."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.integrations.http_client import Response
from penstock.integrations.http_client.response import MalformedResponse, ResponseParser

HEAD_BYTES_MAX = 1_000
BODY_BYTES_MAX = 100
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


def new_parser(body_bytes_max: int = BODY_BYTES_MAX) -> ResponseParser:
    return ResponseParser(head_bytes_max=HEAD_BYTES_MAX, body_bytes_max=body_bytes_max)


def parse(*pieces: bytes, body_bytes_max: int = BODY_BYTES_MAX) -> tuple[ResponseParser, bool]:
    parser = new_parser(body_bytes_max)
    is_complete = [parser.feed(piece) for piece in pieces][-1]
    return parser, is_complete


def response_of(*pieces: bytes, body_bytes_max: int = BODY_BYTES_MAX) -> Response:
    parser, is_complete = parse(*pieces, body_bytes_max=body_bytes_max)
    assert is_complete
    return parser.response(0.0)


@each_sound
def test_a_response_is_the_same_however_it_is_split(name: str) -> None:
    """TCP may split a response anywhere."""
    data = SOUND[name]
    for cut in range(1, len(data)):
        parser, is_complete = parse(data[:cut], data[cut:])

        assert is_complete
        response = parser.response(1.5)
        assert (response.status, response.body) == (200, BODY)
        assert response.header("Retry-After") == "7"
        assert response.header("x") is None
        assert not response.is_truncated
        assert response.duration_seconds == 1.5
        assert parser.is_reusable == (name in REUSABLE)


@each_sound
def test_a_response_is_complete_with_its_last_byte_and_not_before(name: str) -> None:
    data = SOUND[name]
    parser = new_parser()

    assert not any(parser.feed(data[index : index + 1]) for index in range(len(data) - 1))
    assert parser.feed(data[-1:])


def test_one_response_follows_another() -> None:
    parser = new_parser()
    for _ in range(3):
        for name in sorted(REUSABLE):
            parser.begin()

            assert parser.feed(SOUND[name])
            assert parser.response(0.0).body == BODY
            assert parser.is_reusable


@pytest.mark.parametrize("status", [204, 304])
def test_some_statuses_have_no_body(status: int) -> None:
    """A Content-Length there describes another response, and no body follows."""
    parser, is_complete = parse(b"HTTP/1.1 %d X\r\nContent-Length: 5\r\n\r\n" % status)

    assert is_complete
    assert parser.response(0.0).body == b""
    assert parser.is_reusable


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
def test_bytes_after_a_response_make_only_the_connection_unusable(behind: bytes) -> None:
    """A second response would be taken for the response to the next request."""
    for data in SOUND.values():
        parser, is_complete = parse(data + behind)

        assert is_complete
        assert (parser.response(0.0).status, parser.response(0.0).body) == (200, BODY)
        assert not parser.is_reusable


@pytest.mark.parametrize(
    "head",
    [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n",
     b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n"],
)  # fmt: skip
def test_without_a_length_the_end_of_the_connection_ends_the_body(head: bytes) -> None:
    parser, is_complete = parse(head, b"abc", b"def")

    assert not is_complete
    assert parser.end()
    assert parser.response(0.0).body == b"abcdef"
    assert not parser.is_reusable


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
def test_an_early_end_is_detected(data: bytes) -> None:
    """Half a response must not count: the status may not be the final one."""
    parser, is_complete = parse(data)

    assert not is_complete
    assert not parser.end()


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
def test_bytes_that_are_not_a_response_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedResponse):
        parse(data)


def test_a_body_is_kept_up_to_the_limit() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"

    whole = response_of(head % 100 + b"a" * 100)
    cut = response_of(head % 101 + b"a" * 101)
    endless = response_of(b"HTTP/1.1 200 OK\r\n\r\n", b"a" * 60, b"b" * 60)

    assert (len(whole.body), whole.is_truncated) == (100, False)
    assert (len(cut.body), cut.is_truncated) == (100, True)
    assert (endless.body, endless.is_truncated) == (b"a" * 60 + b"b" * 40, True)
    assert not parse(head % 101 + b"a" * 101)[0].is_reusable


@pytest.mark.parametrize("step", [1, 100, 5_000])
def test_a_head_over_the_limit_is_malformed_however_it_is_split(step: int) -> None:
    """Endless headers would fill the memory."""
    data = b"HTTP/1.1 200 OK\r\n" + b"X-Fill: abcdefghij\r\n" * 100 + b"Content-Length: 0\r\n\r\n"

    with pytest.raises(MalformedResponse, match="1000 bytes"):
        parse(*(data[start : start + step] for start in range(0, len(data), step)))


def test_a_short_head_may_arrive_together_with_a_long_body() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"

    response = response_of(head + b"a" * 5_000, body_bytes_max=10_000)

    assert len(response.body) == 5_000


def test_informational_responses_are_limited() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"

    with pytest.raises(MalformedResponse, match="1000 bytes"):
        parse(*[hints] * 100)


def test_trailers_and_tiny_chunks_are_limited() -> None:
    """They carry no body, so a limit on the body alone would never be reached."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"
    for endless in (b"0\r\n" + b"X: y\r\n" * 500, b"1;" + b"x" * 2_000):
        response = response_of(head, endless)

        assert (response.body, response.is_truncated) == (b"a", True)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_nothing_but_malformed_is_ever_raised(first: bytes, second: bytes) -> None:
    """The bytes come from outside."""
    parser = new_parser()
    try:
        if parser.feed(b"HTTP/1.1 200 OK\r\n" + first) or parser.feed(second):
            parser.response(0.0)
    except MalformedResponse:
        pass
