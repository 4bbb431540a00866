"""Replies: one or many lines, cut anywhere, with or without an enhanced code."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.integrations.smtp.reply import (
    REPLY_BYTES_MAX,
    TEXT_LENGTH_MAX,
    MalformedReply,
    ReplyReader,
    make_reply,
)

LINES = b"250-first\r\n250-second\r\n250 third\r\n354 go\r\n550 5.1.1 no\r\n421\r\n"
REPLIES = [(250, b"first\r\nsecond\r\nthird\r"), (354, b"go\r"), (550, b"5.1.1 no\r"), (421, b"")]


@given(st.lists(st.integers(0, len(LINES)), max_size=8))
def test_replies_are_the_same_however_they_are_cut(cuts: list[int]) -> None:
    reader = ReplyReader()
    edges = [0, *sorted(cuts), len(LINES)]

    replies = [reply for start, end in pairwise(edges) for reply in reader.feed(LINES[start:end])]

    assert replies == REPLIES


@pytest.mark.parametrize(
    "garbage", [b"hello\r\n", b"25x ok\r\n", b"250_ok\r\n", b"\r\n", b"99\r\n"]
)
def test_what_is_not_a_reply_is_malformed(garbage: bytes) -> None:
    with pytest.raises(MalformedReply):
        ReplyReader().feed(garbage)


@pytest.mark.parametrize(
    "endless", [b"2" * (REPLY_BYTES_MAX + 1), b"250-more\r\n" * REPLY_BYTES_MAX]
)
def test_a_reply_without_end_is_malformed(endless: bytes) -> None:
    with pytest.raises(MalformedReply):
        ReplyReader().feed(endless)


@pytest.mark.parametrize(
    ("code", "text", "enhanced", "rest"),
    [
        (550, "5.1.1 no such user", "5.1.1", "no such user"),
        (550, "5.7.1 first line\n5.7.1 second line", "5.7.1", "first line second line"),
        (550, "no code 5.1.1 inside", None, "no code 5.1.1 inside"),
        (450, "5.1.1 of another class", None, "5.1.1 of another class"),
        (250, "2.0.0", "2.0.0", ""),
        (550, "5.7.1234 too long", None, "5.7.1234 too long"),
        (451, "4.7.650 limited", "4.7.650", "limited"),
    ],
)
def test_an_enhanced_code_is_read_at_the_start_of_a_line(
    code: int, text: str, *, enhanced: str | None, rest: str
) -> None:
    reply = make_reply("rcpt", code, text)

    assert (reply.enhanced, reply.text) == (enhanced, rest)


def test_the_text_is_cut() -> None:
    assert len(make_reply("dot", 550, "x" * 10_000).text) == TEXT_LENGTH_MAX
